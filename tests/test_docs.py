"""The documentation says what the code does: generated pages, links, examples, commands, routes and words."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sandlot.cli.reference import DOCS, pages

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "bench").glob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "templates").rglob("*.md"),
]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(page: Path) -> list[tuple[str, str]]:
    """Targets and anchors of a page's links, without those in code."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [found for found in LINK.findall(text) if not re.match(r"https?:|mailto:", found[0])]


def blocks(page: Path, language: str) -> list[str]:
    return [dedent(text) for text in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("name", pages())
def test_generated_pages_are_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name](), f"docs/{name} is stale; renew it: ./sandlot reference"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{named(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{named(page)} links to {target}#{anchor}, which has no such heading"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    titles = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    left = [DOCS / "README.md"]
    while left:
        page = left.pop().resolve()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            left += [page.parent / target for target, _ in links(page) if target]
    lost = {named(page) for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]} - {named(page) for page in seen}
    assert lost <= {"README.md"}, f"no way from docs/README.md to {sorted(lost)}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_examples_parse(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, named(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    text = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "QUOTED", page.read_text().replace("\\\n", " "))
    for line in re.findall(r"\./sandlot ([^`\n#|]*)", text):
        unknown = unknown_words(re.split(r"[\s;)]+", line.strip()))
        assert not unknown, f"{named(page)}: ./sandlot {line}: there is no {unknown}"


def unknown_words(words: list[str]) -> list[str]:
    """Of a command line: the commands and options that the program does not know."""
    import typer

    from sandlot.cli.app import app

    command: Any = typer.main.get_command(app)
    known = {"-h", "--help"}
    for number, word in enumerate(words):
        known |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        if word == "--" or command.context_settings.get("ignore_unknown_options"):
            break
        if word.startswith("-") and word.partition("=")[0] not in known:
            return [word]
        if hasattr(command, "commands") and re.match(r"[a-z]", word):
            if not re.fullmatch(r"[a-z]+", word):
                break  # words about commands
            if word not in command.commands:
                return words[: number + 1]
            command = command.commands[word]
    return []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_settings_that_are_named_exist(page: Path) -> None:
    from sandlot.settings import Settings

    known = {f"SANDLOT_{name.upper()}" for name in Settings.model_fields} | {"SANDLOT_VENV", "SANDLOT_LAUNCHER"}
    for name in re.findall(r"\bSANDLOT_[A-Z_]+\b", page.read_text()):
        assert name in known, f"{named(page)} names {name}, which is no setting"


def test_every_decision_is_numbered_once() -> None:
    numbers = [path.name.split("-")[0] for path in sorted((DOCS / "decisions").glob("*.md")) if path.stem != "README"]
    assert len(numbers) == len(set(numbers))
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers)


def test_compatibility_names_every_sandbox_route() -> None:
    """Whoever adds a route of E2B's says so where users look."""
    text = (ROOT / "COMPATIBILITY.md").read_text()
    for source in (ROOT / "src" / "sandlot" / "engine" / "api").glob("*.py"):
        for path in re.findall(r'@router\.\w+\(\s*"(/[^"]*)"', source.read_text()):
            if path in ("/", "/health", "/metrics"):
                continue
            assert path.replace(":path}", "}").replace("{sandboxID}", "{id}").replace("{templateID}", "{id}") in text, (
                path
            )
