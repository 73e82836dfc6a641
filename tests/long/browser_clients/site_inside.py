"""A small site inside a browser's own sandbox, on its loopback: for the scenarios, which know the engine's key."""

from __future__ import annotations

import os

from e2b import Sandbox, SandboxQuery

PORT = 8000
ADDRESS = f"http://127.0.0.1:{PORT}"
PAGE = """<!doctype html><title>Shop</title><h1>Welcome</h1><input id=who aria-label=Name>
<button onclick="said.textContent = 'Hello ' + who.value">Greet</button><p id=said></p>
<a id=file href="/report.txt" download>Report</a>
<input type=file id=upload onchange="said.textContent = upload.files[0].name + ' ' + upload.files[0].size">"""
_SERVE = f"cd /home/user/site && exec python3 -m http.server {PORT} --bind 127.0.0.1"


def sandbox_of(session_id: str) -> Sandbox:
    key, url = os.environ["E2B_API_KEY"], os.environ["E2B_API_URL"]
    options = {"api_key": key, "api_url": url, "sandbox_url": url, "domain": url.partition("://")[2]}
    found = Sandbox.list(query=SandboxQuery(metadata={"sandlot-session": session_id}), **options).next_items()
    assert len(found) == 1, f"{session_id}: {found}"
    return Sandbox.connect(found[0].sandbox_id, timeout=600, **options)


def serve(session_id: str, **files: str) -> Sandbox:
    """`report_txt="..."` is served as /report.txt."""
    box = sandbox_of(session_id)
    box.files.write("/home/user/site/index.html", PAGE)
    for name, content in {"report_txt": "all is well", **files}.items():
        box.files.write(f"/home/user/site/{name.replace('_', '.')}", content)
    box.commands.run(_SERVE, background=True, timeout=0)
    box.commands.run(f"for i in $(seq 100); do curl -fsS -o /dev/null {ADDRESS}/ && exit 0; sleep 0.05; done; exit 1")
    return box
