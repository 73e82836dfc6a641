"""OpenAI's Responses protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.models.anthropic import pieces
from tests.models.conversation import Asked, Call, Message, Result, Tool, merged, text_of
from tests.models.script import Answer, Failure

NAME = "responses"
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def parse(body: Mapping[str, Any], path: str) -> Asked:
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    told = [text_of(item.get("content")) for item in items if item.get("role") in ("system", "developer")]
    wanted = (body.get("text") or {}).get("format") or {}
    return Asked(
        protocol=NAME,
        model=str(body.get("model", "")),
        messages=merged(_message(item) for item in items if item.get("role") not in ("system", "developer")),
        system="\n".join([body.get("instructions") or "", *told]),
        tools=tuple(_tools(body.get("tools") or [])),
        stream=bool(body.get("stream")),
        schema=wanted.get("schema"),
        body=body,
        path=path,
    )


def whole(answer: Answer, asked: Asked) -> dict[str, Any]:
    return {**_envelope(asked, "completed"), "output": _items(answer, asked), "usage": _usage(answer)}


def stream(answer: Answer, asked: Asked) -> Iterator[str]:
    for number, (kind, fields) in enumerate(_events(answer, asked)):
        yield f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number, **fields})}\n\n"


def error(failure: Failure) -> dict[str, Any]:
    return {"error": {"message": failure.message, "type": "server_error", "param": None, "code": None}}


def _events(answer: Answer, asked: Asked) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.created", {"response": _envelope(asked, "in_progress")}
    yield "response.in_progress", {"response": _envelope(asked, "in_progress")}
    for index, item in enumerate(_items(answer, asked)):
        yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            yield from _text(item["content"][0], place)
        elif item["type"] != "reasoning":
            yield from _input(item, place)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": whole(answer, asked)}


def _text(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    here = {**place, "content_index": 0}
    yield "response.content_part.added", {**here, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {**here, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**here, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**here, "part": part}


def _input(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind, key = ("custom_tool_call_input", "input") if "input" in item else ("function_call_arguments", "arguments")
    for piece in pieces(item[key]):
        yield f"response.{kind}.delta", {**place, "delta": piece}
    yield f"response.{kind}.done", {**place, key: item[key]}


def _begun(item: Mapping[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "arguments": "", "input": ""}
    begun = {name: empty.get(name, value) for name, value in item.items()}
    return {**begun, "status": "in_progress"}


def _items(answer: Answer, asked: Asked) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    mark = f"{asked.prompt_index}_{asked.turn}"
    if answer.think:
        summary = [{"type": "summary_text", "text": answer.think}]
        made.append({"type": "reasoning", "id": f"rs_{mark}", "summary": summary})
    if answer.say or not answer.calls:
        part = {"type": "output_text", "text": answer.say, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{mark}", "role": "assistant", "content": [part]}
        made.append({**message, "status": "completed"})
    for call, tool in answer.calls:
        item = {"id": f"item_{call.id}", "call_id": call.id, "name": tool.name, "status": "completed"}
        if tool.namespace:
            item["namespace"] = tool.namespace
        if tool.kind == "custom":
            made.append({**item, "type": "custom_tool_call", "input": str(call.input.get("input", ""))})
        else:
            made.append({**item, "type": "function_call", "arguments": json.dumps(call.input)})
    return made


def _message(item: Mapping[str, Any]) -> Message:
    kind = item.get("type", "message")
    if kind in OUTPUTS:
        return Message("user", results=(Result(item["call_id"], text_of(item.get("output"))),))
    if kind == "function_call":
        return Message("assistant", calls=(Call(item["call_id"], item["name"], json.loads(item["arguments"] or "{}")),))
    if kind == "custom_tool_call":
        return Message("assistant", calls=(Call(item["call_id"], item["name"], {"input": item["input"]}),))
    if kind != "message":  # reasoning and tools of the server: parts of a turn of the model
        return Message("assistant")
    return Message("assistant" if item.get("role") == "assistant" else "user", text_of(item.get("content")))


def _tools(raw: Any, namespace: str | None = None) -> Iterator[Tool]:
    for tool in raw:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools") or [], tool["name"])
        elif "name" in tool:
            yield Tool(tool["name"], "custom" if tool.get("type") == "custom" else "function", namespace)


def _envelope(asked: Asked, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{asked.prompt_index}_{asked.turn}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": asked.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    asked, said = answer.input_tokens, answer.output_tokens
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": asked + said,
    }
