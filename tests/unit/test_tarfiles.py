"""Archives are extracted into their directory and nowhere else."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandlot.tarfiles import content_digest, extract


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


def packed(tmp_path: Path, *members: tuple[str, dict[str, Any], bytes], mtime: int = 0, zipped: bool = True) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, facts, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uid = len(content), mtime, mtime % 1000
            for key, value in facts.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.tar"
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=mtime) if zipped else buffer.getvalue())
    return path


def test_a_digest_of_content_ignores_times_owners_and_packing_and_nothing_else(tmp_path: Path) -> None:
    def digest(*members: tuple[str, dict[str, Any], bytes], **options: Any) -> str | None:
        return content_digest(packed(tmp_path, *members, **options), most_bytes=1 << 20)

    one = digest(("a", {}, b"1"), ("b", {}, b"2"))
    assert one is not None
    assert one == digest(("a", {}, b"1"), ("b", {}, b"2"), mtime=1234567)
    assert one == digest(("a", {}, b"1"), ("b", {}, b"2"), zipped=False)
    others = [
        digest(("a", {}, b"1"), ("b", {}, b"3")),
        digest(("a", {}, b"1"), ("c", {}, b"2")),
        digest(("a", {"mode": 0o755}, b"1"), ("b", {}, b"2")),
        digest(("b", {}, b"2"), ("a", {}, b"1")),
        digest(("a", {}, b"1"), symlink("b", "2")),
        digest(("a", {}, b"1"), symlink("b", "3")),
        digest(("a", {}, b"1")),
    ]
    assert None not in others and len({one, *others}) == 1 + len(others)


def test_what_is_too_large_or_no_archive_has_no_digest_of_its_content(tmp_path: Path) -> None:
    assert content_digest(packed(tmp_path, ("a", {}, bytes(2 << 20))), most_bytes=1 << 20) is None
    vast = packed(tmp_path, ("a", {}, b""), zipped=False)
    header = tarfile.TarInfo("sparse")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 0
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"%011o\0" % (1 << 32)  # what it says to hold once unpacked
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    vast.write_bytes(bytes(block) + bytes(1024))
    with tarfile.open(vast) as archive:
        assert archive.getmembers()[0].size == 1 << 32
    assert content_digest(vast, most_bytes=1 << 20) is None
    (tmp_path / "other").write_bytes(b"\x1f\x8bnothing of the kind")
    assert content_digest(tmp_path / "other", most_bytes=1 << 20) is None
