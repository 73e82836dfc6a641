"""The file tools, called by a real MCP client."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.tools.conftest import Another, Tools

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63000100000005000100"
    "0d0a2db40000000049454e44ae426082"
)


@pytest.fixture
def place(tools: Tools, request: pytest.FixtureRequest) -> Path:
    made = tools.home / f"{abs(hash(request.node.nodeid)):x}"
    made.mkdir()
    return made


async def test_a_file_is_written_read_and_edited(tools: Tools, place: Path) -> None:
    async with tools.caller() as call:
        path = f"{place.name}/deep/er/main.py"  # relative to the home directory
        assert "12 bytes" in await call("write_file", path=path, content="a = 'ä'\nb\n\n")
        assert (place / "deep/er/main.py").read_text() == "a = 'ä'\nb\n\n"
        assert await call("read_file", path=path) == "a = 'ä'\nb\n\n"
        assert "1 place changed" in await call("edit_file", path=path, old="b\n", new="c\n")
        edits = [{"old": "c", "new": "dd"}, {"old": "d", "new": "e", "replace_all": True}]
        assert "3 places changed" in await call("multi_edit_file", path=path, edits=edits)
        assert await call("read_file", path=f"~/{path}") == "a = 'ä'\nee\n\n"


async def test_an_edit_that_does_not_fit_changes_nothing(tools: Tools, place: Path) -> None:
    file = place / "file"
    file.write_bytes(b"one two two \xff\r\n")
    async with tools.caller() as call:
        assert "occurs 2 times" in await call.failure("edit_file", path=str(file), old="two", new="x")
        edits = [{"old": "one", "new": "x"}, {"old": "nonesuch", "new": "y"}]
        assert "edit 2: the old text does not occur" in await call.failure(
            "multi_edit_file", path=str(file), edits=edits
        )
        assert "is empty" in await call.failure("edit_file", path=str(file), old="", new="x")
        assert file.read_bytes() == b"one two two \xff\r\n"
        await call("edit_file", path=str(file), old="one", new="1")
        assert file.read_bytes() == b"1 two two \xff\r\n", "bytes that are no text, and ends of lines, stay"


async def test_modes_and_links_survive_a_write(tools: Tools, place: Path) -> None:
    script = place / "script"
    script.write_text("old")
    script.chmod(0o755)
    (place / "link").symlink_to("script")
    async with tools.caller() as call:
        await call("write_file", path=str(place / "link"), content="new")
        assert (place / "link").is_symlink() and script.read_text() == "new" and script.stat().st_mode & 0o777 == 0o755
        assert {path.name for path in place.iterdir()} == {"link", "script"}, "nothing is left beside it"


async def test_long_files_come_in_parts(tools: Tools, place: Path) -> None:
    (place / "long").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    (place / "wide").write_text("x" * 500_000 + "\nnext\n")
    async with tools.caller() as call:
        first = await call("read_file", path=str(place / "long"))
        assert first.startswith("line 1\n") and "offset=2001" in first
        rest = await call("read_file", path=str(place / "long"), offset=2999)
        assert rest == "line 2999\nline 3000\n"
        assert "has only 3000 lines" in await call.failure("read_file", path=str(place / "long"), offset=4000)
        wide = await call("read_file", path=str(place / "wide"))
        assert len(wide) < 10_000 and "goes on for 496" in wide and wide.endswith("next\n")


async def test_what_is_no_text_is_told_and_images_are_shown(tools: Tools, place: Path) -> None:
    (place / "blob").write_bytes(b"\0\1\2")
    (place / "pixel.png").write_bytes(PIXEL)
    os.mkfifo(place / "pipe")
    async with tools.caller() as call:
        assert "is not text (3 bytes)" in await call.failure("read_file", path=str(place / "blob"))
        assert (await call.ask("read_file", path=str(place / "pixel.png"))).images == [PIXEL]
        assert "not a regular file" in await call.failure("read_file", path=str(place / "pipe"))
        assert "is a directory" in await call.failure("read_file", path=str(place))
        assert "no such file" in await call.failure("read_file", path=str(place / "none"))
        assert "could not write" in await call.failure("write_file", path="/proc/nonesuch/file", content="")


async def test_several_files_are_read_at_once(tools: Tools, place: Path) -> None:
    for name in ("a.py", "b.py", "c.txt"):
        (place / name).write_text(f"this is {name}\n")
    async with tools.caller() as call:
        paths = [f"{place.name}/*.py", f"{place}/c.txt", "nonesuch", "*.nonesuch"]
        shown = await call("read_files", paths=paths)
        assert all(f"this is {name}" in shown for name in ("a.py", "b.py", "c.txt"))
        assert "error: could not read" in shown and "no file matches" in shown


async def test_directories_are_listed_and_names_are_found(tools: Tools, place: Path) -> None:
    (place / "src" / "deep").mkdir(parents=True)
    for name in ("src/a.py", "src/deep/b.py", ".hidden.py", ".git/c.py"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("12345")
    (place / "link").symlink_to("src")
    os.utime(place / "src/a.py", (1, 1))
    async with tools.caller() as call:
        assert await call("list_directory", path=str(place)) == ".git/\n.hidden.py  5\nlink -> src\nsrc/"
        assert "    b.py  5" in await call("list_directory", path=str(place), depth=3)
        found = (await call("glob", pattern="**/*.py", path=str(place))).splitlines()
        assert set(found) == {f"{place}/{name}" for name in ("src/a.py", "src/deep/b.py", ".hidden.py")}
        assert found[-1] == f"{place}/src/a.py", "the latest change comes first"
        assert await call("glob", pattern="*.nonesuch", path=str(place)) == "no file matches"
        assert "no such directory" in await call.failure("glob", pattern="*", path="nonesuch")


@pytest.fixture(params=["ripgrep", "grep"])
def searching(request: pytest.FixtureRequest, another: Another, tmp_path: Path) -> Another:
    """With and without ripgrep, which not every template has."""
    if request.param == "ripgrep" and shutil.which("rg") is None:
        pytest.skip("there is no ripgrep on this machine")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("grep", "rg") if request.param == "ripgrep" else ("grep",):
        (programs / name).symlink_to(str(shutil.which(name)))
    return lambda: another(PATH=str(programs))


async def test_lines_are_found(searching: Another) -> None:
    with searching() as tools:
        (tools.home / "a.py").write_text("first\nsecond (x)\nthird\n")
        (tools.home / "b.txt").write_text("Second\n")
        (tools.home / "c.bin").write_bytes(b"second\0")
        async with tools.caller() as call:
            assert await call("grep", pattern="sec.nd", path="a.py") == f"{tools.home}/a.py:2:second (x)"
            both = await call("grep", pattern="^second", ignore_case=True, files_only=True)
            assert sorted(both.splitlines()) == [f"{tools.home}/a.py", f"{tools.home}/b.txt"]
            assert "second (x)" in await call("grep", pattern="(x)", fixed=True, include="*.py")
            around = await call("grep", pattern="second", include="*.py", context=1)
            assert "first" in around and "third" in around
            assert await call("grep", pattern="nonesuch") == "nothing matches"
            assert "the search failed" in await call.failure("grep", pattern="(")
            assert "only the first 1 lines" in await call("grep", pattern=".", limit=1)
