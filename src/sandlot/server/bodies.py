"""Bodies of requests, within limits: large JSON is looked at by another process before the server itself reads it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from sandlot import children
from sandlot.server import json_check

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Scope = MutableMapping[str, Any]

SMALL_BYTES = 256 << 10  # what is read at once: however it is made, it takes a few milliseconds
AT_ONCE = 1
CHECK_S = 30


class Bodies:
    """One for each application: it bounds how many large bodies are looked at together."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)

    def bounded(
        self, scope: Scope, receive: Receive, most_bytes: int, remark: str = "", *, is_file: bool = False
    ) -> Receive:
        """The same body, read by whoever reads it: up to so many bytes, and JSON only of bounded depth and number of parts.

        What is wrong is raised as an `HTTPException`. JSON arrives as a whole, unless it is a file that nobody reads here.
        """
        if not is_file and _is_json(scope):
            return _Whole(_counted(receive, most_bytes, remark), self._check).receive
        return _counted(receive, most_bytes, remark)

    async def _check(self, body: bytes) -> None:
        async with self._slots:
            if await asyncio.to_thread(_status, body) != json_check.FINE:
                raise HTTPException(
                    400,
                    f"the body is not JSON, or has more than {json_check.MOST_PARTS} values, "
                    f"or is nested deeper than {json_check.MOST_DEPTH}",
                )


class _Whole:
    """Collects a body, has it checked if it is large, and hands it on."""

    def __init__(self, receive: Receive, check: Callable[[bytes], Awaitable[None]]) -> None:
        self._receive, self._check = receive, check
        self._is_done = False

    async def receive(self) -> Message:
        if self._is_done:
            return await self._receive()
        self._is_done = True
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        if len(body) > SMALL_BYTES:
            await self._check(bytes(body))
        return {"type": "http.request", "body": bytes(body), "more_body": False}


def _counted(receive: Receive, most_bytes: int, remark: str) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most_bytes:
            raise HTTPException(413, too_large(most_bytes, remark))
        return message

    return counted


def too_large(most_bytes: int, remark: str = "") -> str:
    size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
    return f"the body is larger than the {size} that this route takes{remark}"


def has_body(scope: Scope) -> bool:
    return any(
        (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
        for name, value in scope["headers"]
    )


def _is_json(scope: Scope) -> bool:
    """Also what does not say what it is: readers guess."""
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return not kinds or b"json" in kinds[-1].lower()


def _status(body: bytes) -> int:
    with os.fdopen(os.memfd_create("body"), "w+b") as file:
        file.write(body)
        file.seek(0)
        child = children.spawn(
            [sys.executable, "-I", "-S", json_check.__file__],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
        try:
            return child.wait(CHECK_S)
        except subprocess.TimeoutExpired:
            return json_check.REFUSED
        finally:
            child.kill()
            child.wait()
            children.release(child)
