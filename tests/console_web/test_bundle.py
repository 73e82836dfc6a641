"""The built console in the checkout: made from the source that is beside it, small, and with nothing from elsewhere."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.console_web.node import STATIC, WEB, node_modules

FIRST_LOAD = 300_000  # bytes, gzipped


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the console's source, where a build disturbs nothing."""
    modules = node_modules()
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(WEB, root / "web", ignore=shutil.ignore_patterns("node_modules"))
    (root / "web" / "node_modules").symlink_to(modules)
    return root / "web"


@pytest.mark.timeout(900)
def test_the_bundle_is_what_its_source_builds(source: Path) -> None:
    done = subprocess.run([source / "bin" / "rebuild"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (source / "src/api/schema.d.ts").read_text() == (WEB / "src/api/schema.d.ts").read_text(), (
        "the API has changed: run web/bin/rebuild and commit what it writes"
    )
    built = source.parent / "src" / "sandlot" / "console" / "static"
    assert _files(built) == _files(STATIC), "run web/bin/rebuild and commit what it writes"


def test_the_first_load_is_small() -> None:
    page = (STATIC / "index.html").read_text()
    named = re.findall(r'(?:src|href)="/console/([^"]+)"', page)
    styles = [(STATIC / name).read_text() for name in named if name.endswith(".css")]
    fonts = [name for style in styles for name in re.findall(r"url\(/console/([^)]*inter[^)]*)\)", style)]
    assert any(name.endswith(".js") for name in named) and fonts
    sent = sum(len(gzip.compress((STATIC / name).read_bytes())) for name in [*named, *fonts])
    assert sent < FIRST_LOAD, f"the first load takes {sent} bytes"


def test_nothing_comes_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!/console/)', page)
    for path in STATIC.rglob("*.css"):
        assert not re.findall(r"url\((?!/console/|data:|#|\"data:|'data:|\"#)", path.read_text()), path.name
    assert "<script>" not in page, "the content security policy forbids scripts inside the page"


def _files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
