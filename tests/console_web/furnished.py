"""A server as somebody works with it: repositories with pull requests, sandboxes, and a template with builds; through the API, git and the SDK."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
from e2b import Sandbox, Template

REPOSITORY, BRANCH = "orders", "health-route"
FILES = {
    "src/orders/app.py": "from fastapi import FastAPI\n\n\ndef create_app() -> FastAPI:\n    return FastAPI(title='orders')\n",
    "README.md": "# Orders\n\nTakes orders.\n",
}
CHANGED = {
    "src/orders/app.py": (
        "from fastapi import FastAPI\n\n\ndef create_app() -> FastAPI:\n    app = FastAPI(title='orders')\n\n"
        "    @app.get('/health')\n    async def health() -> dict[str, str]:\n        return {'status': 'ok'}\n\n    return app\n"
    ),
    "tests/test_health.py": "def test_health(client):\n    assert client.get('/health').json() == {'status': 'ok'}\n",
}
BODY = "Adds `GET /health`.\n\n- answers 200\n- needs no key\n\nCloses the oldest wish of the people who run it."


def furnish(address: str, key: str) -> None:
    with httpx.Client(base_url=address, headers={"X-API-KEY": key}, timeout=120, trust_env=False) as client:
        _pull_request(client, address, key)
    options: dict[str, Any] = {"api_key": key, "api_url": address, "sandbox_url": address}
    kept = Sandbox.create(
        timeout=3600, metadata={"purpose": "a look around"}, network={"allow_public_traffic": False}, **options
    )
    kept.commands.run("mkdir -p site && echo '<h1>Hello</h1>' > site/index.html")
    kept.commands.run("cd site && python3 -m http.server 8000", background=True)
    Sandbox.create(timeout=3600, **options).kill()
    template = Template().from_base_image().run_cmd("echo one step").run_cmd("echo another step > note.txt")
    Template.build(template, alias="orders-dev", cpu_count=1, memory_mb=512, api_key=key, api_url=address)


def _pull_request(client: httpx.Client, address: str, key: str) -> None:
    client.post("/repositories", json={"name": REPOSITORY, "empty": True}).raise_for_status()
    with tempfile.TemporaryDirectory() as place:
        checkout = Path(place)
        url = address.replace("://", f"://key:{key}@") + f"/git/{REPOSITORY}.git"
        _git(checkout, "init", "-q", "-b", "main")
        _commit(checkout, FILES, "Take orders")
        _git(checkout, "push", "-q", url, "main")
        _git(checkout, "checkout", "-q", "-b", BRANCH)
        _commit(checkout, CHANGED, "Add a /health route")
        _git(checkout, "push", "-q", url, BRANCH)
    asked = {"title": "Add a /health route", "head": BRANCH, "base": "main", "body": BODY}
    opened = client.post(f"/repositories/{REPOSITORY}/pulls", json=asked).raise_for_status().json()
    said = {"body": "Should it say the version, too?", "path": "src/orders/app.py", "line": 9}
    client.post(f"/repositories/{REPOSITORY}/pulls/{opened['number']}/comments", json=said).raise_for_status()


def _commit(checkout: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    _git(checkout, "add", "-A")
    _git(checkout, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "-m", message)


def _git(checkout: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("key")
    given = parser.parse_args()
    furnish(given.address, given.key)
