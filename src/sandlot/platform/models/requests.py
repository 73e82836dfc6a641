"""Reads a request for a model within limits, and changes only what must be changed in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from sandlot import bounded_json
from sandlot.platform.models.dialects import ModelRoute

MAX_BODY = 32 << 20  # images are sent in it
MOST_CONTAINERS = 200_000
LARGE = 256 << 10  # parsed in a thread, so that nobody else waits
MAX_MODEL = 200
MAX_ESTIMATE = 64_000  # tokens that an answer may have, where a request does not say


class RequestRefused(Exception):
    """The request is not passed on: a status and a sentence for the caller."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    body: bytes
    fields: Mapping[str, Any]  # the body; empty where there is none
    model: str | None

    @property
    def input_estimate(self) -> int:
        return len(self.body) // 4

    @property
    def output_estimate(self) -> int:
        config = self.fields.get("generationConfig")
        named = [self.fields.get(name) for name in ("max_tokens", "max_output_tokens", "max_completion_tokens")]
        named.append(config.get("maxOutputTokens") if isinstance(config, dict) else None)
        given = [n for n in named if isinstance(n, int) and not isinstance(n, bool) and n > 0]
        return min(given[0] if given else 4096, MAX_ESTIMATE)


async def read_request(route: ModelRoute, receive: Receive) -> ModelRequest:
    """Raises `RequestRefused`."""
    body = await _body(receive)
    if not body:
        return ModelRequest(body=b"", fields={}, model=route.model)
    try:
        fields = await asyncio.to_thread(_parse, body) if len(body) > LARGE else _parse(body)
    except ValueError as error:
        raise RequestRefused(400, f"the request is not JSON that this gateway takes: {error}") from None
    if not isinstance(fields, dict):
        raise RequestRefused(400, "the request must be a JSON object")
    model = route.model or fields.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL:
        raise RequestRefused(400, "the request does not name a model")
    return ModelRequest(body=body, fields=fields, model=model)


def outgoing(route: ModelRoute, request: ModelRequest, model: str) -> bytes:
    """The body for an endpoint: as it came, unless the model has another name there, or a stream would not tell its usage."""
    changes: dict[str, Any] = {}
    if route.model is None and request.model != model:
        changes["model"] = model
    if route.is_chat and request.fields.get("stream") is True:
        options = request.fields.get("stream_options")
        options = options if isinstance(options, dict) else {}
        if options.get("include_usage") is not True:
            changes["stream_options"] = {**options, "include_usage": True}
    return json.dumps({**request.fields, **changes}).encode() if changes else request.body


async def _body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "the caller left")
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise RequestRefused(413, f"the request is larger than the {MAX_BODY >> 20} MiB that this gateway takes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _parse(body: bytes) -> Any:
    return bounded_json.loads(body, most_bytes=MAX_BODY, most_containers=MOST_CONTAINERS)
