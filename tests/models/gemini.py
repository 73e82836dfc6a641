"""Google's Gemini protocol (generateContent and streamGenerateContent)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.models.anthropic import pieces
from tests.models.conversation import Asked, Call, Message, Result, Tool, merged, text_of
from tests.models.script import Answer, Failure

NAME = "gemini"
PATH = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)$")
STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def parse(body: Mapping[str, Any], path: str) -> Asked:
    found = PATH.search(path)
    wanted = body.get("generationConfig") or {}
    return Asked(
        protocol=NAME,
        model=found.group(1) if found else "",
        messages=merged(_message(content, n) for n, content in enumerate(body.get("contents", []))),
        system=text_of((body.get("systemInstruction") or {}).get("parts")),
        tools=tuple(
            Tool(function["name"])
            for tool in body.get("tools") or []
            for function in tool.get("functionDeclarations", [])
        ),
        stream=bool(found and found.group(2) == "streamGenerateContent"),
        schema=wanted.get("responseJsonSchema") or wanted.get("responseSchema"),
        body=body,
        path=path,
    )


def whole(answer: Answer, asked: Asked) -> dict[str, Any]:
    return _response(answer, asked, [*_said(answer), *_calls(answer)], "STOP")


def stream(answer: Answer, asked: Asked) -> Iterator[str]:
    parts = [{**part, "text": piece} for part in _said(answer) for piece in pieces(part["text"]) or [""]]
    parts += _calls(answer)
    for number, part in enumerate(parts, 1):
        body = _response(answer, asked, [part], "STOP" if number == len(parts) else None)
        yield f"data: {json.dumps(body)}\r\n\r\n"


def error(failure: Failure) -> dict[str, Any]:
    status = STATUS.get(failure.status, "INTERNAL")
    return {"error": {"code": failure.status, "message": failure.message, "status": status}}


def tokens(asked: Asked) -> dict[str, Any]:
    return {"totalTokens": max(1, len(json.dumps(asked.body)) // 4)}


def _message(raw: Mapping[str, Any], number: int) -> Message:
    parts = raw.get("parts", [])
    return Message(
        role="assistant" if raw.get("role") == "model" else "user",
        text="\n".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        calls=tuple(_call(part["functionCall"], number) for part in parts if "functionCall" in part),
        results=tuple(_result(part["functionResponse"], number) for part in parts if "functionResponse" in part),
    )


def _call(raw: Mapping[str, Any], number: int) -> Call:
    return Call(raw.get("id") or f"{raw['name']}-{number}", raw["name"], raw.get("args") or {})


def _result(raw: Mapping[str, Any], number: int) -> Result:
    returned = raw.get("response") or {}
    text = returned.get("output", returned.get("error"))
    identity = raw.get("id") or f"{raw['name']}-{number - 1}"
    return Result(identity, text if isinstance(text, str) else json.dumps(returned), "error" in returned)


def _said(answer: Answer) -> list[dict[str, Any]]:
    thought = [{"text": answer.think, "thought": True}] if answer.think else []
    return thought + ([{"text": answer.say}] if answer.say or not answer.calls else [])


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "functionCall": {"id": call.id, "name": tool.name, "args": dict(call.input)},
            "thoughtSignature": "c2NyaXB0ZWQ=",
        }
        for call, tool in answer.calls
    ]


def _response(answer: Answer, asked: Asked, parts: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    total = answer.input_tokens + answer.output_tokens
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": answer.input_tokens,
            "candidatesTokenCount": answer.output_tokens,
            "totalTokenCount": total,
        },
        "modelVersion": asked.model,
        "responseId": f"response-{asked.prompt_index}-{asked.turn}",
    }
