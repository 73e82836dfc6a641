"""OpenAI's Chat Completions protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.models.anthropic import pieces
from tests.models.conversation import Asked, Call, Message, Result, Tool, merged, text_of
from tests.models.script import Answer, Failure

NAME = "chat"


def parse(body: Mapping[str, Any], path: str) -> Asked:
    messages = body.get("messages", [])
    told = [text_of(message.get("content")) for message in messages if message["role"] in ("system", "developer")]
    wanted = body.get("response_format") or {}
    return Asked(
        protocol=NAME,
        model=str(body.get("model", "")),
        messages=merged(_message(message) for message in messages if message["role"] not in ("system", "developer")),
        system="\n".join(told),
        tools=tuple(Tool(tool["function"]["name"]) for tool in body.get("tools", []) if "function" in tool),
        stream=bool(body.get("stream")),
        schema=(wanted.get("json_schema") or {}).get("schema"),
        body=body,
        path=path,
    )


def whole(answer: Answer, asked: Asked) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.say or None, **_calls(answer)}
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
    return {**_envelope(asked, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream(answer: Answer, asked: Asked) -> Iterator[str]:
    yield _chunk(asked, {"role": "assistant", "content": ""})
    for part in pieces(answer.say):
        yield _chunk(asked, {"content": part})
    for index, (call, tool) in enumerate(answer.calls):
        head = {"index": index, "id": call.id, "type": "function", "function": {"name": tool.name, "arguments": ""}}
        yield _chunk(asked, {"tool_calls": [head]})
        for part in pieces(json.dumps(call.input)):
            yield _chunk(asked, {"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield _chunk(asked, {}, _reason(answer))
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        yield _data({**_envelope(asked, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
    yield "data: [DONE]\n\n"


def error(failure: Failure) -> dict[str, Any]:
    return {"error": {"message": failure.message, "type": "server_error", "param": None, "code": None}}


def _message(raw: Mapping[str, Any]) -> Message:
    text = text_of(raw.get("content"))
    if raw["role"] == "tool":
        return Message("user", results=(Result(raw["tool_call_id"], text),))
    calls = tuple(
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
        for call in raw.get("tool_calls") or ()
    )
    return Message("assistant" if raw["role"] == "assistant" else "user", text, calls)


def _calls(answer: Answer) -> dict[str, Any]:
    made = [
        {"id": call.id, "type": "function", "function": {"name": tool.name, "arguments": json.dumps(call.input)}}
        for call, tool in answer.calls
    ]
    return {"tool_calls": made} if made else {}


def _envelope(asked: Asked, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{len(asked.messages)}", "object": kind, "created": 0, "model": asked.model}


def _chunk(asked: Asked, delta: Mapping[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _data({**_envelope(asked, "chat.completion.chunk"), "choices": [choice]})


def _usage(answer: Answer) -> dict[str, int]:
    asked, said = answer.input_tokens, answer.output_tokens
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _data(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
