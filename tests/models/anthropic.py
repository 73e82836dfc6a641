"""Anthropic's Messages protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.models.conversation import Asked, Call, Message, Result, Tool, merged, text_of
from tests.models.script import Answer, Failure

NAME = "anthropic"
KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


def parse(body: Mapping[str, Any], path: str) -> Asked:
    return Asked(
        protocol=NAME,
        model=str(body.get("model", "")),
        messages=merged(_message(message) for message in body.get("messages", [])),
        system=text_of(body.get("system")),
        tools=tuple(Tool(tool["name"]) for tool in body.get("tools", [])),
        stream=bool(body.get("stream")),
        schema=_schema(body),
        body=body,
        path=path,
    )


def whole(answer: Answer, asked: Asked) -> dict[str, Any]:
    return {
        **_envelope(answer, asked),
        "content": [*_blocks(answer)],
        "stop_reason": _reason(answer),
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def stream(answer: Answer, asked: Asked) -> Iterator[str]:
    yield _event("message_start", message=_envelope(answer, asked))
    for index, block in enumerate(_blocks(answer)):
        yield from _block(index, block)
    stop = {"stop_reason": _reason(answer), "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage={"output_tokens": answer.output_tokens})
    yield _event("message_stop")


def error(failure: Failure) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": KINDS.get(failure.status, "api_error"), "message": failure.message},
        "request_id": "req_scripted",
    }


def tokens(asked: Asked) -> dict[str, Any]:
    return {"input_tokens": max(1, len(json.dumps(asked.body)) // 4)}


def _message(raw: Mapping[str, Any]) -> Message:
    content = raw.get("content", [])
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(
        # Messages of the system in the middle of a conversation come from the same side as the user's.
        role="assistant" if raw.get("role") == "assistant" else "user",
        text="\n".join(block["text"] for block in blocks if block.get("type") == "text"),
        calls=tuple(
            Call(block["id"], block["name"], block.get("input", {}))
            for block in blocks
            if block.get("type") == "tool_use"
        ),
        results=tuple(
            Result(block["tool_use_id"], text_of(block.get("content")), bool(block.get("is_error")))
            for block in blocks
            if block.get("type") == "tool_result"
        ),
    )


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    schema: Mapping[str, Any] | None = wanted.get("schema")
    return schema


def _envelope(answer: Answer, asked: Asked) -> dict[str, Any]:
    return {
        "id": f"msg_scripted_{len(asked.messages)}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": 1},
    }


def _blocks(answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.think:
        yield {"type": "thinking", "thinking": answer.think, "signature": "scripted"}
    if answer.say or not answer.calls:
        yield {"type": "text", "text": answer.say}
    for call, tool in answer.calls:
        yield {"type": "tool_use", "id": call.id, "name": tool.name, "input": dict(call.input)}


def _block(index: int, block: Mapping[str, Any]) -> Iterator[str]:
    empty: dict[str, Any]
    if block["type"] == "text":
        empty = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
    elif block["type"] == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in pieces(json.dumps(block["input"]))]
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _reason(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def pieces(text: str, most: int = 3) -> list[str]:
    """A text in a few parts, so that clients have something to put together."""
    size = max(1, -(-len(text) // most))
    return [text[start : start + size] for start in range(0, len(text), size)]
