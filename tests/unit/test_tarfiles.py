"""Archives are extracted into their directory and nowhere else."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandlot.tarfiles import extract


def archive(*members: tuple[str, dict[str, Any], bytes]) -> tarfile.TarFile:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, facts, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in facts.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    packed.seek(0)
    return tarfile.open(fileobj=packed)


def symlink(name: str, target: str) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": tarfile.SYMTYPE, "linkname": target}, b""


def hard_link(name: str, target: str) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": tarfile.LNKTYPE, "linkname": target, "mode": 0o777}, b""


def test_files_directories_and_links_arrive_and_belong_to_us(tmp_path: Path) -> None:
    with archive(
        ("d", {"type": tarfile.DIRTYPE, "mode": 0o555, "uid": 12345}, b""),
        ("d/program", {"mode": 0o6777, "uid": 12345, "uname": "daemon"}, b"content"),
        symlink("d/link", "../other"),
        hard_link("other", "d/program"),
    ) as tar:
        extract(tar, tmp_path)
    program = tmp_path / "d" / "program"
    assert program.read_bytes() == (tmp_path / "d" / "link").read_bytes() == b"content"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert program.stat().st_uid == (tmp_path / "d").stat().st_uid == os.geteuid()
    assert program.samefile(tmp_path / "other")


@pytest.mark.parametrize(
    "members",
    [
        [("../out", {}, b"x")],
        [("/tmp/sandlot-out", {}, b"x")],
        [("a/../../out", {}, b"x")],
        [symlink("link", "/etc")],
        [symlink("link", "../out")],
        [symlink("a/link", "../../out")],
        [hard_link("link", "../secret")],
        [hard_link("link", "/etc/passwd")],
        [("pipe", {"type": tarfile.FIFOTYPE}, b"")],
        [("device", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, b"")],
    ],
)
def test_what_leads_out_is_refused(tmp_path: Path, members: list[tuple[str, dict[str, Any], bytes]]) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    with archive(("first", {}, b"1"), *members) as tar, pytest.raises(tarfile.TarError):
        extract(tar, root)
    assert [entry.name for entry in root.iterdir()] == ["first"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"root", "secret"}


@pytest.mark.parametrize("last", [("link/out", {}, b"x"), ("file", {}, b"x"), hard_link("got", "file")])
def test_links_that_may_point_out_are_never_followed(tmp_path: Path, last: tuple[str, dict[str, Any], bytes]) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "file").write_text("secret")
    links = symlink("link", str(outside)), symlink("file", "../outside/file")
    with archive(*links, last) as tar, pytest.raises(tarfile.TarError, match="leads out"):
        extract(tar, root, links_may_leave=True)
    assert (root / "link").readlink() == outside
    assert [entry.read_text() for entry in outside.iterdir()] == ["secret"]
    assert not (root / "got").exists()
