"""What differs between the protocols of models: which requests there are, how a key is sent, what an error looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandlot.platform.core.models import ModelApi


class ModelOperation(StrEnum):
    GENERATE = "generate"  # costs money
    COUNT = "count"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """A request that we know. `path` is what the endpoint is asked for; `{model}` in it is the model's place."""

    api: ModelApi
    operation: ModelOperation
    path: str
    model: str | None = None  # where the path names it
    is_chat: bool = False  # Chat Completions: usage in streams only if asked for


_FIXED = {
    ("POST", "/v1/messages"): (ModelApi.ANTHROPIC, ModelOperation.GENERATE),
    ("POST", "/v1/messages/count_tokens"): (ModelApi.ANTHROPIC, ModelOperation.COUNT),
    ("POST", "/v1/chat/completions"): (ModelApi.OPENAI, ModelOperation.GENERATE),
    ("POST", "/v1/responses"): (ModelApi.OPENAI, ModelOperation.GENERATE),
    ("POST", "/v1/completions"): (ModelApi.OPENAI, ModelOperation.GENERATE),
    ("POST", "/v1/embeddings"): (ModelApi.OPENAI, ModelOperation.GENERATE),
    ("GET", "/v1beta/models"): (ModelApi.GEMINI, ModelOperation.LIST),
}
_GEMINI = re.compile(r"/(v1beta|v1)/models/([A-Za-z0-9._-]{1,128}):([A-Za-z]{1,40})")
_GEMINI_CALLS = {
    "generateContent": ModelOperation.GENERATE,
    "streamGenerateContent": ModelOperation.GENERATE,
    "embedContent": ModelOperation.GENERATE,
    "batchEmbedContents": ModelOperation.GENERATE,
    "countTokens": ModelOperation.COUNT,
}


def recognise(method: str, path: str, headers: Mapping[str, str]) -> ModelRoute | None:
    """The request that is meant, or None: anything else an endpoint can do is not for sandboxes."""
    if method == "GET" and path == "/v1/models":
        is_anthropic = "anthropic-version" in headers
        return ModelRoute(
            api=ModelApi.ANTHROPIC if is_anthropic else ModelApi.OPENAI, operation=ModelOperation.LIST, path=path
        )
    if known := _FIXED.get((method, path)):
        return ModelRoute(api=known[0], operation=known[1], path=path, is_chat=path == "/v1/chat/completions")
    found = _GEMINI.fullmatch(path) if method == "POST" else None
    operation = _GEMINI_CALLS.get(found[3]) if found else None
    if found is None or operation is None:
        return None
    return ModelRoute(
        api=ModelApi.GEMINI, operation=operation, path=f"/{found[1]}/models/{{model}}:{found[3]}", model=found[2]
    )


def guess_api(path: str, headers: Mapping[str, str]) -> ModelApi:
    """Whose errors a caller understands, where the request is none we know."""
    if path.startswith("/v1beta") or "x-goog-api-key" in headers:
        return ModelApi.GEMINI
    is_anthropic = path.startswith("/v1/messages") or "anthropic-version" in headers
    return ModelApi.ANTHROPIC if is_anthropic else ModelApi.OPENAI


def key_header(api: ModelApi, key: str) -> tuple[str, str]:
    match api:
        case ModelApi.ANTHROPIC:
            return "x-api-key", key
        case ModelApi.OPENAI:
            return "authorization", f"Bearer {key}"
        case ModelApi.GEMINI:
            return "x-goog-api-key", key


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
_OPENAI_CODES = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}
_GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    504: "DEADLINE_EXCEEDED",
}


def error_body(api: ModelApi, status: int, message: str) -> bytes:
    """An error as this protocol's own servers spell it."""
    body: dict[str, Any]
    match api:
        case ModelApi.ANTHROPIC:
            body = {
                "type": "error",
                "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message},
            }
        case ModelApi.OPENAI:
            kind = "insufficient_quota" if status == 402 else "invalid_request_error" if status < 500 else "api_error"
            body = {"error": {"message": message, "type": kind, "param": None, "code": _OPENAI_CODES.get(status)}}
        case ModelApi.GEMINI:
            body = {"error": {"code": status, "message": message, "status": _GEMINI_STATUS.get(status, "UNAVAILABLE")}}
    return json.dumps(body).encode()
