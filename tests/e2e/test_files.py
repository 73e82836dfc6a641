"""Files of sandboxes, as users of the Python SDK and holders of a signed URL handle them."""

from __future__ import annotations

import hashlib
import io
import random

import httpx
import pytest
from e2b import AsyncSandbox, FileType, Sandbox
from e2b.exceptions import FileNotFoundException, InvalidArgumentException
from tests.e2e.server import Server, until

LARGE = random.Random(7).randbytes(30 << 20)


def test_text_is_read_as_it_was_written(sandbox: Sandbox, home: str) -> None:
    text = "line\r\nä€😀\n\ttab and \x00 null"
    written = sandbox.files.write(f"{home}/ä b/notes 😀.txt", text)
    assert written.name == "notes 😀.txt" and written.path == f"{home}/ä b/notes 😀.txt"
    assert sandbox.files.read(written.path) == text
    assert sandbox.commands.run(f"stat -c '%U %a' '{home}/ä b/notes 😀.txt'").stdout == "user 644\n"


def test_bytes_are_read_as_they_were_written(sandbox: Sandbox, home: str) -> None:
    every = bytes(range(256)) * 40
    sandbox.files.write(f"{home}/bytes", every)
    assert bytes(sandbox.files.read(f"{home}/bytes", format="bytes")) == every
    sandbox.files.write(f"{home}/bytes", b"")
    assert bytes(sandbox.files.read(f"{home}/bytes", format="bytes")) == b""


@pytest.mark.parametrize("gzip", [False, True], ids=["plain", "gzip"])
def test_thirty_megabytes_go_in_and_come_back(sandbox: Sandbox, home: str, gzip: bool) -> None:
    sandbox.files.write(f"{home}/large", io.BytesIO(LARGE), gzip=gzip)
    digest = sandbox.commands.run(f"sha256sum {home}/large").stdout.split()[0]
    assert digest == hashlib.sha256(LARGE).hexdigest()
    streamed = hashlib.sha256()
    for part in sandbox.files.read(f"{home}/large", format="stream", gzip=gzip):
        streamed.update(part)
    assert streamed.hexdigest() == digest


def test_several_files_are_written_at_once(sandbox: Sandbox, home: str) -> None:
    files = [{"path": f"{home}/many/{n}.txt", "data": str(n)} for n in range(12)]
    written = sandbox.files.write_files(files)
    assert [info.path for info in written] == [file["path"] for file in files]
    assert [sandbox.files.read(file["path"]) for file in files] == [file["data"] for file in files]


def test_metadata_stays_with_a_file(sandbox: Sandbox, home: str) -> None:
    sandbox.files.write(f"{home}/tagged", "x", metadata={"origin": "upload", "Run-Id": "42"})
    assert sandbox.files.get_info(f"{home}/tagged").metadata == {"origin": "upload", "run-id": "42"}
    sandbox.files.write(f"{home}/tagged", "y")
    assert not sandbox.files.get_info(f"{home}/tagged").metadata


def test_directories_are_listed_to_the_asked_depth(sandbox: Sandbox, home: str) -> None:
    sandbox.commands.run("mkdir -p a/b/c; echo hello > a/file; ln -s file a/link; ln -s gone a/dangling", cwd=home)
    entries = {entry.name: entry for entry in sandbox.files.list(f"{home}/a")}
    assert entries["file"].type is FileType.FILE and entries["file"].size == 6
    assert entries["b"].type is FileType.DIR and entries["b"].permissions == "drwxr-xr-x"
    assert entries["link"].symlink_target and entries["link"].symlink_target.endswith("file")
    deep = {entry.path for entry in sandbox.files.list(home, depth=4)}
    assert f"{home}/a/b/c" in deep and f"{home}/a" in deep
    assert f"{home}/a/b/c" not in {entry.path for entry in sandbox.files.list(home, depth=2)}


def test_what_is_not_there_is_said_so(sandbox: Sandbox, home: str) -> None:
    assert sandbox.files.exists(f"{home}/nothing") is False
    for act in (
        lambda: sandbox.files.read(f"{home}/nothing"),
        lambda: sandbox.files.list(f"{home}/nothing"),
        lambda: sandbox.files.get_info(f"{home}/nothing"),
        lambda: sandbox.files.rename(f"{home}/nothing", f"{home}/else"),
    ):
        with pytest.raises(FileNotFoundException):
            act()
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read(home)
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write(home, "a directory is there")


def test_files_are_made_moved_and_removed(sandbox: Sandbox, home: str) -> None:
    assert sandbox.files.make_dir(f"{home}/one/two") is True
    assert sandbox.files.make_dir(f"{home}/one/two") is False
    sandbox.files.write(f"{home}/one/two/file", "content")
    moved = sandbox.files.rename(f"{home}/one/two", f"{home}/three/four")
    assert moved.path == f"{home}/three/four" and moved.type is FileType.DIR
    assert sandbox.files.exists(f"{home}/one/two") is False
    assert sandbox.files.read(f"{home}/three/four/file") == "content"
    sandbox.files.remove(f"{home}/three")
    assert sandbox.files.exists(f"{home}/three") is False


def test_relative_paths_begin_at_home_of_the_user(sandbox: Sandbox, home: str) -> None:
    name = home.removeprefix("/home/user/")
    assert sandbox.files.write(f"{name}/relative", "r").path == f"{home}/relative"
    assert sandbox.files.write(f"~/{name}/tilde", "t").path == f"{home}/tilde"
    assert sandbox.files.write("from-root", "r", user="root").path == "/root/from-root"
    assert sandbox.commands.run("stat -c %U /root/from-root", user="root").stdout == "root\n"


def test_files_of_others_are_out_of_reach_for_commands_of_the_user(sandbox: Sandbox) -> None:
    sandbox.files.write("/root/secret", "s", user="root")
    assert sandbox.commands.run("cat /root/secret 2>/dev/null || echo refused").stdout == "refused\n"


@pytest.mark.parametrize("expiration", [None, 300])
def test_signed_urls_need_nothing_but_themselves(sandbox: Sandbox, home: str, expiration: int | None) -> None:
    path = f"{home}/shared ä+&.bin"
    with httpx.Client(trust_env=False, timeout=30) as client:
        upload = sandbox.upload_url(path, user="user", use_signature_expiration=expiration)
        assert client.post(upload, files={"file": ("x", b"\x00\xffdata")}).status_code == 200
        download = sandbox.download_url(path, user="user", use_signature_expiration=expiration)
        assert client.get(download).content == b"\x00\xffdata"
        assert client.get(download, headers={"Range": "bytes=2-5"}).content == b"data"
        assert client.get(download.replace("signature=v1_", "signature=v1_X")).status_code in (400, 401)
        assert client.post(download, files={"file": ("x", b"y")}).status_code in (400, 401)


def test_a_signed_url_expires(sandbox: Sandbox, home: str) -> None:
    sandbox.files.write(f"{home}/brief", "b")
    url = sandbox.download_url(f"{home}/brief", user="user", use_signature_expiration=1)
    with httpx.Client(trust_env=False, timeout=30) as client:
        assert client.get(url).status_code == 200
        until(lambda: client.get(url).status_code == 401)
        assert client.get(url).json() == {"code": 401, "message": "signature is already expired"}


def test_a_full_directory_of_names_is_listed_whole(sandbox: Sandbox, home: str) -> None:
    sandbox.commands.run("seq 1 3000 | xargs touch", cwd=home)
    assert len(sandbox.files.list(home)) == 3000


async def test_files_with_the_async_sdk(server: Server, sandbox: Sandbox, home: str) -> None:
    box = await AsyncSandbox.connect(sandbox.sandbox_id, **server.sdk)
    await box.files.write(f"{home}/async", LARGE[: 1 << 20])
    assert bytes(await box.files.read(f"{home}/async", format="bytes")) == LARGE[: 1 << 20]
    size = 0
    async for part in await box.files.read(f"{home}/async", format="stream"):
        size += len(part)
    assert size == 1 << 20
    assert [entry.name for entry in await box.files.list(home)] == ["async"]
    await box.files.remove(f"{home}/async")
    assert await box.files.exists(f"{home}/async") is False
