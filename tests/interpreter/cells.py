"""Cells as the code-interpreter SDKs run them, wherever the server is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Cells:
    client: httpx.Client  # shows the token of the sandbox

    def run(self, code: str, **options: Any) -> list[dict[str, Any]]:
        """All lines of a cell but the last, which must say that it ended."""
        answer = self.client.post("/execute", json={"code": code, **options})
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert lines.pop() == {"type": "end_of_execution"}
        return [line for line in lines if line["type"] != "keepalive"]

    def results(self, code: str, **options: Any) -> list[dict[str, Any]]:
        lines = self.run(code, **options)
        assert not [line for line in lines if line["type"] == "error"], lines
        return [line for line in lines if line["type"] == "result"]

    def value(self, code: str, **options: Any) -> Any:
        """The text of the main result."""
        (line,) = [line for line in self.run(code, **options) if line.get("is_main_result")]
        return line["text"]

    def printed(self, code: str, **options: Any) -> str:
        return "".join(line["text"] for line in self.run(code, **options) if line["type"] == "stdout")

    def failure(self, code: str, **options: Any) -> dict[str, Any]:
        (line,) = [line for line in self.run(code, **options) if line["type"] == "error"]
        return line

    def context(self, **options: Any) -> str:
        answer = self.client.post("/contexts", json=options)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])
