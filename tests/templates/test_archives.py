"""Hostile archives: whatever an upload holds stays in its own build, and is reported with its step."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.server import Server
from tests.security.test_archives import pax_bomb

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy


def archive(*entries: tuple[str, dict[str, Any], bytes], packed: bool = True) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, facts, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in facts.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue()) if packed else buffer.getvalue()


FILE: dict[str, Any] = {}
LINK = {"type": tarfile.SYMTYPE}


def copy(server: Server, content: bytes, args: list[str], before: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Build a template with one COPY of this archive; its last status."""
    files_hash = hashlib.sha256(uuid.uuid4().bytes).hexdigest()
    with server.http() as client:
        requested = client.post("/v3/templates", json={"name": f"archive-{uuid.uuid4().hex[:8]}"}).json()
        link = client.get(f"/templates/{requested['templateID']}/files/{files_hash}").json()
        assert link["present"] is False
        assert httpx.put(link["url"], content=content, trust_env=False).status_code == 200
        assert client.get(f"/templates/{requested['templateID']}/files/{files_hash}").json()["present"] is True
        step = {"type": "COPY", "args": args, "filesHash": files_hash}
        start = f"/v2/templates/{requested['templateID']}/builds/{requested['buildID']}"
        assert (
            client.post(start, json={"fromImage": "e2bdev/base", "steps": [*(before or []), step]}).status_code == 202
        )
        deadline = time.monotonic() + 60
        while True:
            status: dict[str, Any] = client.get(
                f"/templates/{requested['templateID']}/builds/{requested['buildID']}/status"
            ).json()
            if status["status"] in ("ready", "error"):
                return {**status, "template": requested["templateID"]}
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: archive(("../../etc/cron.d/x", FILE, b"bad")), "outside the build context"),
        (lambda: archive(("/etc/cron.d/x", FILE, b"bad")), "outside the build context"),
        (lambda: archive(("a", {**LINK, "linkname": "/etc"}, b""), ("a/x", FILE, b"bad")), "through a symbolic link"),
        (
            lambda: archive(("a", {"type": tarfile.LNKTYPE, "linkname": "../../etc/shadow"}, b"")),
            "outside the build context",
        ),
        (lambda: archive(("a", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, b"")), "neither file"),
        (lambda: archive(("a", {"type": tarfile.FIFOTYPE}, b"")), "neither file"),
        (lambda: b"this is no archive", "cannot be read"),
        (lambda: archive(("a", FILE, b"x" * 4096))[:-20], "cannot be read"),
        (pax_bomb, "more memory than unpacking it may"),
        (lambda: archive(("big", FILE, b"\0" * (200 << 20))), "disk full"),
    ],
    ids=["dots", "absolute", "link", "hard-link", "device", "fifo", "no-archive", "cut-off", "pax-bomb", "too-large"],
)
def test_an_archive_that_is_not_what_it_should_be_fails_its_step(
    server: Server, content: Callable[[], bytes], message: str
) -> None:
    status = copy(server, content(), [".", "/srv/x"])
    assert status["status"] == "error" and message in status["reason"]["message"], status
    assert status["reason"]["step"] == "1"


def test_links_of_the_image_lead_nowhere_but_into_the_image(server: Server, tmp_path: Path) -> None:
    """A destination that is a link is followed inside the image's own root, never on the host."""
    marker = f"sandlot-test-{uuid.uuid4().hex}"
    links = {
        "type": "RUN",
        "args": [f"mkdir -p {tmp_path} && ln -s {tmp_path} /srv/way && ln -s ../../../../tmp /srv/up", "root"],
    }
    for target in ("/srv/way/", "/srv/up/"):
        status = copy(server, archive((marker, FILE, b"x")), [marker, target], [links])
        assert status["status"] == "ready", status
        assert not (tmp_path / marker).exists() and not Path("/tmp", marker).exists()


def test_a_plain_archive_is_taken_and_sources_outside_the_context_are_not(server: Server) -> None:
    content = archive(("dir/file", FILE, b"x"), packed=False)
    assert copy(server, content, ["dir/*", "/srv/there"])["status"] == "ready"
    status = copy(server, content, ["../dir", "/srv/there"])
    assert status["status"] == "error" and "outside the build context" in status["reason"]["message"]
    for args, message in (
        (["missing", "/srv/there"], "is not among the uploaded files"),
        (["dir", "/srv/there", "ghost"], "there is no user 'ghost' in the image"),
        (["dir", "/srv/there", "user:ghosts"], "there is no group 'ghosts' in the image"),
        (["dir", "/etc/passwd/x"], "leads through something that is no directory"),
    ):
        assert message in copy(server, content, args)["reason"]["message"]


def test_files_go_where_docker_would_put_them(server: Server) -> None:
    content = archive(
        ("d", {"type": tarfile.DIRTYPE, "mode": 0o755}, b""),
        ("d/one", FILE, b"1"),
        ("d/sub/two", FILE, b"2"),
        ("d/s", {**LINK, "linkname": "one"}, b""),
    )
    steps = [
        {
            "type": "RUN",
            "args": [
                "mkdir -p /srv/old/sub /real && echo 0 > /srv/old/sub/zero && ln -s /real /srv/old/linked",
                "root",
            ],
        }
    ]
    status = copy(server, content, ["d", "/srv/old"], steps)
    assert status["status"] == "ready", status
    single = copy(server, archive(("f", FILE, b"f")), ["f", "/new/place/"])
    assert (status["status"], single["status"]) == ("ready", "ready")
    for template, look, seen in (
        (
            status["template"],
            "cat /srv/old/one /srv/old/sub/two /srv/old/sub/zero; readlink /srv/old/s /srv/old/linked",
            "120\none\n/real\n",
        ),
        (single["template"], "cat /new/place/f; stat -c %U /new/place/f", "fuser\n"),
    ):
        sandbox = server.create(template)
        assert sandbox.commands.run(look).stdout == seen
        sandbox.kill()


def test_an_upload_needs_its_link(server: Server) -> None:
    files_hash = "0" * 64
    with server.http() as client:
        requested = client.post("/v3/templates", json={"name": f"link-{uuid.uuid4().hex[:8]}"}).json()
        url = client.get(f"/templates/{requested['templateID']}/files/{files_hash}").json()["url"]
        assert client.get(f"/templates/{requested['templateID']}/files/{'z' * 64}").status_code == 400
        for wrong in (
            url.replace("signature=", "signature=0"),
            url.replace(files_hash, "1" * 64),
            url.replace("until=", "until=9"),
        ):
            assert client.put(wrong, content=b"x").status_code == 403
        step = {"type": "COPY", "args": ["a", "b"], "filesHash": files_hash}
        start = f"/v2/templates/{requested['templateID']}/builds/{requested['buildID']}"
        assert client.post(start, json={"steps": [step]}).status_code == 202
        deadline = time.monotonic() + 60
        while (
            status := client.get(f"/templates/{requested['templateID']}/builds/{requested['buildID']}/status").json()
        )["status"] == "building":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "were not uploaded" in status["reason"]["message"]
