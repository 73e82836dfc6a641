"""The documentation says what the code does: settings, routes, decisions and links are all there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandlot.cli.reference import settings_page

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]


def test_the_settings_page_is_what_the_settings_say() -> None:
    page = ROOT / "docs" / "reference" / "settings.md"
    assert page.read_text() == settings_page(), "renew it: python -m sandlot.cli.reference > docs/reference/settings.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_every_decision_is_numbered_once() -> None:
    numbers = [path.name.split("-")[0] for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert len(numbers) == len(set(numbers))
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers)


def test_compatibility_names_every_sandbox_route() -> None:
    """Whoever adds a route of E2B's says so where users look."""
    text = (ROOT / "COMPATIBILITY.md").read_text()
    for source in (ROOT / "src" / "sandlot" / "engine" / "api").glob("*.py"):
        for path in re.findall(r'@router\.\w+\(\s*"(/[^"]*)"', source.read_text()):
            if path in ("/", "/health", "/metrics"):
                continue
            assert path.replace("{sandboxID}", "{id}").replace("{templateID}", "{id}") in text, path
