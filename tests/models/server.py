"""The scripted model as an HTTP server: four protocols on one port, every request kept for the test to look at."""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.models import anthropic, chat, gemini, responses
from tests.models.conversation import Asked, Result
from tests.models.script import Answer, Failure, Script, ScriptError, answer, load, parse

MOST_KEPT = 1000
MOST_BODY = 64 << 20


class ScriptedModel:
    """Use as a context manager, or `serve` it. `url` is what clients of Anthropic and Gemini take as base, `url + "/v1"` those of OpenAI."""

    def __init__(self, script: Script, host: str = "127.0.0.1", port: int = 0) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.problems: list[str] = []
        self._failed: dict[tuple[int, int, str], int] = {}
        self._turn = threading.Lock()
        self._server = _Server((host, port), _Handler)
        self._server.model = self

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    @property
    def results(self) -> list[Result]:
        """What tools returned to the model, each once, in the order in which it was told."""
        told: dict[str, Result] = {}
        for asked in self.asked:
            for message in asked.messages:
                told.update({result.call_id: result for result in message.results})
        return list(told.values())

    @property
    def tools(self) -> set[str]:
        """The names of all tools that were offered."""
        return {tool.name for asked in self.asked for tool in asked.tools}

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def __enter__(self) -> ScriptedModel:
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def replace(self, script: Script) -> None:
        """Another script, with nothing kept of the one before."""
        with self._turn:
            self.script = script
            self.asked, self.problems, self._failed = [], [], {}

    def answer(self, asked: Asked) -> Answer:
        with self._turn:
            self.asked = [*self.asked, asked][-MOST_KEPT:]
            try:
                made = answer(self.script, asked)
            except ScriptError as problem:
                self.problems.append(str(problem))
                return Answer(say=f"The scripted model stops: {problem}")
            if made.fail is None:
                return made
            key = (asked.prompt_index, asked.turn, asked.prompt)
            self._failed[key] = self._failed.get(key, 0) + 1
            if self._failed[key] > made.fail.times:
                return Answer(**{**made.__dict__, "fail": None})
            return made

    def state(self, *, bodies: bool = False) -> dict[str, Any]:
        with self._turn:
            return {
                "problems": list(self.problems),
                "results": [result.__dict__ for result in self.results],
                "tools": sorted(self.tools),
                "requests": [asked.record(with_body=bodies) for asked in self.asked],
            }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents hang up when they have heard enough: no reason to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/_/state":
            self._json(self.server.model.state(bodies="bodies" in parse_qs(parts.query, keep_blank_values=True)))
        elif parts.path.endswith("/models"):
            listed = {"id": "scripted", "object": "model", "type": "model", "display_name": "scripted"}
            self._json({"object": "list", "data": [listed], "has_more": False, "models": []})
        else:
            self._json({"error": {"message": f"nothing at {parts.path}"}}, 404)

    def do_PUT(self) -> None:
        body = self._body()
        if urlsplit(self.path).path != "/_/script":
            return self._json({"error": {"message": f"nothing at {self.path}"}}, 404)
        try:
            self.server.model.replace(parse(body))
        except ScriptError as problem:
            return self._json({"error": {"message": str(problem)}}, 400)
        return self._json({})

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        body = self._body()
        protocol = protocol_of(path)
        if protocol is None or not isinstance(body, Mapping):
            return self._json({"error": {"message": f"nothing at {path}"}}, 404)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = protocol.parse(body, path)
        asked = Asked(**{**asked.__dict__, "headers": headers, "path": self.path})
        if path.endswith(("/count_tokens", ":countTokens")):
            return self._json(protocol.tokens(asked))
        return self._answer(protocol, asked)

    def _answer(self, protocol: ModuleType, asked: Asked) -> None:
        made = self.server.model.answer(asked)
        time.sleep(made.delay_s)
        if made.fail is not None:
            self._fail(protocol, made.fail)
        elif not asked.stream:
            self._json(protocol.whole(made, asked))
        elif protocol is gemini and "alt=sse" not in asked.path:
            self._json([protocol.whole(made, asked)])
        else:
            self._stream(protocol.stream(made, asked), cut=made.cut)

    def _fail(self, protocol: ModuleType, failure: Failure) -> None:
        after = {} if failure.retry_after_s is None else {"Retry-After": f"{failure.retry_after_s:g}"}
        self._json(protocol.error(failure), failure.status, after)

    def _stream(self, events: Iterator[str], *, cut: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        told = list(events)
        for event in told[: len(told) // 2] if cut else told:
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> Any:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MOST_BODY))
        with contextlib.suppress(ValueError):
            return json.loads(data)
        return None

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()


def protocol_of(path: str) -> ModuleType | None:
    if path.endswith(("/messages", "/messages/count_tokens")):
        return anthropic
    if path.endswith("/chat/completions"):
        return chat
    if path.endswith("/responses"):
        return responses
    return gemini if gemini.PATH.search(path) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path, help="JSON: a list of turns, or scenes")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    given = parser.parse_args()
    model = ScriptedModel(load(given.script), given.host, given.port)
    print(f"scripted model at {model.url}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        model.serve()


if __name__ == "__main__":
    main()
