"""Files, directories and watches, through the official SDK and plain HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from e2b import AsyncSandbox, FileType, Sandbox
from e2b.exceptions import FileNotFoundException, InvalidArgumentException, NotFoundException
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType
from e2b.sandbox.signature import get_signature
from tests.guest.running import TOKEN, Envd, eventually


def test_what_is_written_is_read_back_and_belongs_to_the_user(sandbox: Sandbox, envd: Envd) -> None:
    info = sandbox.files.write("new/dirs/héllo wörld.txt", "content ✓")
    assert info.path == f"{envd.home}/new/dirs/héllo wörld.txt"
    assert sandbox.files.read(info.path) == "content ✓"
    owner = envd.home.stat().st_uid
    assert [path.stat().st_uid for path in (Path(info.path), envd.home / "new", envd.home / "new/dirs")] == [owner] * 3
    assert Path(info.path).stat().st_mode & 0o777 == 0o644


def test_overwriting_replaces_content_and_metadata(sandbox: Sandbox) -> None:
    sandbox.files.write("meta.txt", "long content", metadata={"Color": "red", "n": "1"})
    assert sandbox.files.get_info("meta.txt").metadata == {"color": "red", "n": "1"}
    sandbox.files.write("meta.txt", "x", metadata={"n": "2"})
    assert sandbox.files.get_info("meta.txt").metadata == {"n": "2"}
    assert sandbox.files.read("meta.txt") == "x"


@pytest.mark.parametrize("options", [{}, {"use_octet_stream": True}, {"gzip": True}])
def test_binary_content_of_any_size_survives_every_kind_of_upload(sandbox: Sandbox, options: dict[str, bool]) -> None:
    for size in (0, 1, 65_536, 3_000_001):
        data = os.urandom(size // 2) + b"\r\n--" * (size // 8)
        sandbox.files.write("blob", data, **options)  # type: ignore[arg-type]
        assert bytes(sandbox.files.read("blob", format="bytes")) == data
        assert bytes(sandbox.files.read("blob", format="bytes", gzip=True)) == data


def test_many_files_are_written_in_one_request(sandbox: Sandbox) -> None:
    written = sandbox.files.write_files([{"path": f"many/{n}.txt", "data": str(n)} for n in range(10)])
    assert [info.name for info in written] == [f"{n}.txt" for n in range(10)]
    assert sandbox.files.read("many/7.txt") == "7"


def test_listing_goes_as_deep_as_asked_and_not_through_links(sandbox: Sandbox, envd: Envd) -> None:
    sandbox.files.write("tree/a/b/c.txt", "x")
    (envd.home / "tree" / "link").symlink_to(envd.home / "tree" / "a")
    (envd.home / "tree" / "dangling").symlink_to("/nowhere")
    assert [entry.name for entry in sandbox.files.list("tree")] == ["a", "link"]
    deep = {entry.path: entry for entry in sandbox.files.list("tree", depth=3)}
    assert sorted(path.removeprefix(f"{envd.home}/tree/") for path in deep) == ["a", "a/b", "a/b/c.txt", "link"]
    link = deep[f"{envd.home}/tree/link"]
    assert (link.type, link.symlink_target) == (FileType.DIR, f"{envd.home}/tree/a")
    through = sandbox.files.list("tree/link")
    assert [entry.path for entry in through] == [f"{envd.home}/tree/link/b"]


def test_an_entry_is_described_as_ls_would(sandbox: Sandbox, envd: Envd) -> None:
    sandbox.files.write("described.sh", "12345")
    (envd.home / "described.sh").chmod(0o4755)
    info = sandbox.files.get_info("described.sh")
    assert (info.size, info.mode, info.permissions) == (5, 0o755, "urwxr-xr-x")
    assert (info.owner, info.group) == ("user", "user")
    assert abs(info.modified_time.timestamp() - time.time()) < 60


def test_missing_things_are_not_found(sandbox: Sandbox) -> None:
    assert not sandbox.files.exists("missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.read("missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.list("missing")
    with pytest.raises(NotFoundException):
        sandbox.files.rename("missing", "elsewhere")
    sandbox.files.remove("missing")


def test_directories_are_made_once_moved_and_removed_whole(sandbox: Sandbox, envd: Envd) -> None:
    assert sandbox.files.make_dir("d1/d2")
    assert not sandbox.files.make_dir("d1/d2")
    sandbox.files.write("d1/d2/f", "x")
    (envd.home / "d1" / "out").symlink_to(envd.home / "keep")
    sandbox.files.write("keep/precious", "x")
    sandbox.files.rename("d1", "moved/into/d1")
    assert sandbox.files.exists("moved/into/d1/d2/f")
    sandbox.files.remove("moved")
    assert not (envd.home / "moved").exists()
    assert (envd.home / "keep" / "precious").exists()


def test_a_file_in_the_way_is_a_clear_error(sandbox: Sandbox) -> None:
    sandbox.files.write("plain", "x")
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        sandbox.files.make_dir("plain")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write("plain/below", "x")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list("plain")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("/")


def test_a_named_pipe_never_holds_a_request_up(envd: Envd) -> None:
    os.mkfifo(envd.home / "pipe")
    assert envd.request("GET", f"/files?path={envd.home}/pipe")[0] == 400
    headers = {"Content-Type": "application/octet-stream"}
    assert envd.request("POST", f"/files?path={envd.home}/pipe", b"x", headers)[0] == 400


def test_the_kernels_files_can_be_read_though_they_have_no_size(sandbox: Sandbox) -> None:
    assert "processor" in sandbox.files.read("/proc/cpuinfo")


def test_a_file_that_contains_less_than_it_says_is_answered_with_what_it_contains(envd: Envd) -> None:
    path = Path("/sys/kernel/uevent_seqnum")
    if not path.exists() or path.stat().st_size <= len(path.read_bytes()):
        pytest.skip("this kernel has no such file")
    status, _, body = envd.request("GET", f"/files?path={path}")
    assert status == 200 and body.strip().isdigit()
    assert envd.request("GET", f"/files?path={path}", headers={"Range": "bytes=4000-"})[0] == 416


def test_a_file_that_is_rewritten_while_it_is_read_breaks_no_answer(envd: Envd) -> None:
    path, done = envd.home / "rewritten", threading.Event()
    path.write_bytes(b"x")

    def rewrite() -> None:
        while not done.is_set():
            for size in (2 << 20, 1, 300_000):
                path.write_bytes(b"x" * size)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(100):
            status, _, body = envd.request("GET", f"/files?path={path}")
            assert status == 200 and not body.strip(b"x")
    finally:
        done.set()
        writer.join()


def test_files_too_large_to_be_held_are_sent_as_they_are(envd: Envd) -> None:
    content = os.urandom(5 << 20)
    (envd.home / "large").write_bytes(content)
    assert envd.request("GET", f"/files?path={envd.home}/large")[2] == content
    tail = envd.request("GET", f"/files?path={envd.home}/large", headers={"Range": "bytes=-10"})
    assert (tail[0], tail[2]) == (206, content[-10:])


@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=8-", 206, b"89"),
        ("bytes=-2", 206, b"89"),
        ("bytes=5-500", 206, b"56789"),
        ("bytes=10-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=4-2", 416, b""),
        ("bytes=x-y", 416, b""),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_ranges(envd: Envd, header: str, status: int, body: bytes) -> None:
    (envd.home / "digits").write_bytes(b"0123456789")
    answer = envd.request("GET", f"/files?path={envd.home}/digits", headers={"Range": header})
    assert (answer[0], answer[2]) == (status, body)


def test_an_unchanged_file_is_not_sent_again(envd: Envd) -> None:
    (envd.home / "same.txt").write_text("same")
    path = f"/files?path={envd.home}/same.txt"
    _status, headers, _body = envd.request("GET", path)
    assert headers["content-type"].startswith("text/plain")
    assert envd.request("GET", path, headers={"If-Modified-Since": headers["last-modified"]})[0] == 304
    assert envd.request("GET", path, headers={"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"})[0] == 200


def test_compression_follows_the_clients_wish(envd: Envd) -> None:
    (envd.home / "z.txt").write_bytes(b"z" * 100_000)
    path = f"/files?path={envd.home}/z.txt"
    for wish, encoding in (
        ("gzip", "gzip"),
        ("gzip;q=1.0, identity;q=0.5", "gzip"),
        ("br", None),
        ("gzip, deflate", None),
    ):
        status, headers, body = envd.request("GET", path, headers={"Accept-Encoding": wish})
        assert (status, headers.get("content-encoding")) == (200, encoding)
        assert (gzip.decompress(body) if encoding else body) == b"z" * 100_000
    assert envd.request("GET", path, headers={"Accept-Encoding": "identity;q=0, br"})[0] == 406
    assert envd.request("GET", path, headers={"Accept-Encoding": "identity;q=0", "Range": "bytes=0-1"})[0] == 406


def test_signed_urls_open_one_file_for_one_purpose_until_they_expire(envd: Envd) -> None:
    (envd.home / "signed").write_text("ok")
    path = f"{envd.home}/signed"
    none = {"X-Access-Token": ""}

    def status(
        operation: str, expires_in: int | None = None, method: str = "GET", **changes: str
    ) -> tuple[int, object]:
        signature = get_signature(path, operation, "user", TOKEN, expires_in)
        fields = {"path": path, "username": "user", "signature": signature["signature"]}
        if signature["expiration"] is not None:
            fields["signature_expiration"] = str(signature["expiration"])
        fields.update(changes)
        query = "&".join(f"{name}={quote(value)}" for name, value in fields.items())
        code, _headers, body = envd.request(method, f"/files?{query}", b"" if method == "POST" else None, none)
        return code, json.loads(body)["message"] if code == 401 else None

    assert status("read") == (200, None)
    assert status("read", 60) == (200, None)
    assert status("read", -60) == (401, "signature is already expired")
    assert status("write") == (401, "invalid signature")
    assert status("read", path="/etc/passwd") == (401, "invalid signature")
    assert status("read", 60, signature_expiration="99999999999") == (401, "invalid signature")
    assert envd.request("GET", f"/files?path={path}", headers=none)[0] == 401
    wrong = envd.request("GET", f"/files?path={path}", headers={"X-Access-Token": "guess"})
    assert (wrong[0], json.loads(wrong[2])["message"]) == (401, "access token present in header but does not match")


def test_files_are_composed_from_parts(envd: Envd) -> None:
    for name in ("p1", "p2"):
        (envd.home / name).write_text(name)
    wish = {"source_paths": ["p1", "p2"], "destination": "whole/file"}
    status, _headers, body = envd.request("POST", "/files/compose", json.dumps(wish).encode())
    assert (status, json.loads(body)["path"]) == (200, f"{envd.home}/whole/file")
    assert (envd.home / "whole/file").read_text() == "p1p2"
    assert not (envd.home / "p1").exists()
    assert envd.request("POST", "/files/compose", json.dumps(wish).encode())[0] == 404
    assert envd.request("POST", "/files/compose", b'{"source_paths":[1]}')[0] == 400


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, b"x", 400),
        ({"Content-Type": "multipart/form-data"}, b"x", 400),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\nno end", 400),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--', 400),
        ({"Content-Type": "application/octet-stream"}, b"x", 400),
        ({"Content-Type": "application/octet-stream", "Content-Encoding": "br"}, b"x", 400),
        ({"Content-Type": "application/octet-stream", "X-Metadata-a": "b" * 5000}, b"x", 400),
    ],
)  # fmt: skip
def test_broken_uploads_are_refused(envd: Envd, headers: dict[str, str], body: bytes, status: int) -> None:
    code, _headers, answer = envd.request("POST", "/files", body, headers)
    assert (code, json.loads(answer)["code"]) == (status, status)


def test_broken_gzip_and_forbidden_paths_are_refused(envd: Envd) -> None:
    raw = {"Content-Type": "application/octet-stream"}
    assert envd.request("POST", "/files?path=g", b"no gzip", {**raw, "Content-Encoding": "gzip"})[0] == 400
    cut = gzip.compress(b"x" * 1000)[:-5]
    assert envd.request("POST", "/files?path=g", cut, {**raw, "Content-Encoding": "gzip"})[0] == 400
    assert envd.request("POST", "/files?path=a%00b", b"x", raw)[0] == 400
    assert envd.request("POST", "/files?path=%zz", b"x", raw)[0] == 400
    assert envd.request("POST", f"/files?path={'n' * 300}", b"x", raw)[0] == 400
    assert envd.request("POST", "/files?path=~other/x", b"x", raw)[0] == 400
    assert envd.request("GET", "/files?path=x&username=ghost")[0] == 401


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("plain name.txt", 'inline; filename="plain name.txt"'),
        ('a"b\\c.txt', 'inline; filename="a\\"b\\\\c.txt"'),
        ("grüße.txt", "inline; filename*=utf-8''gr%C3%BC%C3%9Fe%2Etxt"),
        ("two\nlines\r", "inline; filename*=utf-8''two%0Alines%0D"),
    ],
)
def test_a_download_has_its_name_whatever_that_is(envd: Envd, name: str, told: str) -> None:
    (envd.home / name).write_text("x")
    status, headers, body = envd.request("GET", f"/files?path={quote(name)}")
    assert (status, headers["content-disposition"], body) == (200, told, b"x")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-Metadata-A": "gr\xfc\xdfe"}, "not printable ASCII"),
        ({"X-Metadata-A": "x" * 5000}, "exceeds 4096 bytes"),
        ({"X-Metadata-" + "k" * 300: "x"}, "exceeds"),
    ],
    ids=["no ASCII", "too much", "long key"],
)
def test_metadata_that_cannot_be_kept_is_refused_and_nothing_is_written(
    envd: Envd, headers: dict[str, str], said: str
) -> None:
    raw = {"Content-Type": "application/octet-stream"}
    status, _headers, answer = envd.request("POST", "/files?path=refused.txt", b"x", {**raw, **headers})
    assert status == 400 and json.loads(answer)["message"].startswith("invalid metadata: ")
    assert said in json.loads(answer)["message"]
    assert not (envd.home / "refused.txt").exists()


def test_a_polled_watcher_tells_everything_in_order(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("polled/sub")
    watcher = sandbox.files.watch_dir("polled", recursive=True)
    seen: list[tuple[str, FilesystemEventType]] = []

    def wait_for(name: str, kind: FilesystemEventType) -> None:
        def is_told() -> bool:
            seen.extend((event.name, event.type) for event in watcher.get_new_events())
            return (name, kind) in seen

        eventually(is_told)

    sandbox.files.write("polled/sub/f.txt", "1")
    sandbox.files.rename("polled/sub/f.txt", "polled/sub/g.txt")
    sandbox.files.make_dir("polled/fresh/below")
    wait_for("fresh/below", FilesystemEventType.CREATE)
    sandbox.files.write("polled/fresh/below/late.txt", "1")
    sandbox.files.remove("polled/sub/g.txt")
    wait_for("sub/g.txt", FilesystemEventType.REMOVE)
    expected = [
        ("sub/f.txt", FilesystemEventType.CREATE),
        ("sub/f.txt", FilesystemEventType.WRITE),
        ("sub/f.txt", FilesystemEventType.RENAME),
        ("sub/g.txt", FilesystemEventType.CREATE),
        ("fresh", FilesystemEventType.CREATE),
        ("fresh/below", FilesystemEventType.CREATE),
        ("fresh/below/late.txt", FilesystemEventType.CREATE),
        ("fresh/below/late.txt", FilesystemEventType.WRITE),
        ("sub/g.txt", FilesystemEventType.REMOVE),
    ]
    assert list(dict.fromkeys(event for event in seen if event in expected)) == expected, seen
    watcher.stop()
    with pytest.raises(NotFoundException):
        sandbox.files.watch_dir("not/there")


async def test_a_streamed_watch_carries_entries(async_sandbox: AsyncSandbox) -> None:
    await async_sandbox.files.make_dir("streamed")
    arrived: asyncio.Queue[object] = asyncio.Queue()
    handle = await async_sandbox.files.watch_dir("streamed", arrived.put_nowait, include_entry=True)
    await async_sandbox.files.write("streamed/x", "12")
    event = await asyncio.wait_for(arrived.get(), 60)
    assert (event.name, event.type) == ("x", FilesystemEventType.CREATE)  # type: ignore[attr-defined]
    assert event.entry.path.endswith("/streamed/x")  # type: ignore[attr-defined]
    await handle.stop()
