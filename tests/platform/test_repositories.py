"""Repositories beside the engine, in the server as it is started by default: commands of the CLI, and real git at its port."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from tests.e2e.server import Server
from tests.git.world import commit, git, well


def told(server: Server, *words: str) -> Any:
    return json.loads(server.cli(*words, "--json").stdout)


async def test_a_repository_and_its_pull_requests_on_the_command_line(engine: Server, tmp_path: Path) -> None:
    made = told(engine, "repo", "create", "on-the-line")
    try:
        assert (made["forge"], made["clone_url"]) == ("local", f"http://127.0.0.1:{engine.port}/git/on-the-line.git")
        clone = tmp_path / "clone"
        address = made["clone_url"].replace("://", f"://x:{engine.key}@")
        await well("clone", "-q", address, clone)
        await well("checkout", "-qb", "topic", at=clone)
        await commit(clone, "a.txt", "one\n")
        await well("push", "-q", "origin", "HEAD", at=clone)
        assert "fatal" in (await git("ls-remote", address.replace(engine.key, "wrong"))).output

        assert "on-the-line" in [row["name"] for row in told(engine, "repo", "list")]
        shown = told(engine, "repo", "show", "on-the-line")
        assert [each["name"] for each in shown["branches"]] == ["main", "topic"]
        async with engine_http(engine) as http:
            body = {"title": "Add \x1b[31ma", "head": "topic"}
            assert (await http.post("/repositories/on-the-line/pulls", json=body)).status_code == 201
        told(engine, "pr", "comment", "on-the-line", "1", "Why?", "--path", "a.txt", "--line", "1")
        assert [row["number"] for row in told(engine, "pr", "list", "on-the-line", "--state", "open")] == [1]
        text = engine.cli("pr", "show", "on-the-line", "1").stdout
        assert "a.txt:1: Why?" in text and "\x1b" not in text
        assert "+one" in engine.cli("pr", "diff", "on-the-line", "1").stdout
        assert told(engine, "pr", "merge", "on-the-line", "1")["state"] == "merged"
        refused = engine.cli("pr", "close", "on-the-line", "1", check=False)
        assert refused.returncode == 1 and "merged" in refused.stderr
        wrong = engine.cli("repo", "add", "ssh://example.org/x", check=False)
        assert wrong.returncode == 1 and "begins with https://" in wrong.stderr
    finally:
        engine.cli("repo", "remove", "on-the-line")
    assert "on-the-line" not in [row["name"] for row in told(engine, "repo", "list")]


def engine_http(server: Server) -> httpx.AsyncClient:
    url = f"http://127.0.0.1:{server.port}"
    return httpx.AsyncClient(base_url=url, headers={"X-API-KEY": server.key}, timeout=60, trust_env=False)
