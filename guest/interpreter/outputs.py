"""The lines the SDKs read, made from the messages of Jupyter kernels."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
Line = dict[str, Any]

FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
KEEPALIVE: Line = {"type": "keepalive"}
END: Line = {"type": "end_of_execution"}


def encode(line: Line) -> bytes:
    """One line of JSON. Numbers that JSON does not have become null: JavaScript would refuse the whole line."""
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(line), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def line_of(message: Message) -> Line | None:
    """What the message shows; None for messages that show nothing."""
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            kind = "stderr" if content.get("name") == "stderr" else "stdout"
            return {"type": kind, "text": content.get("text", ""), "timestamp": time.time_ns()}
        case "execute_input":
            return {"type": "number_of_executions", "execution_count": content.get("execution_count")}
        case "display_data":
            return result(content.get("data", {}), is_main=False)
        case "execute_result":
            return result(content.get("data", {}), is_main=True)
        case "error":
            return error(content)
    return None


def result(data: Mapping[str, Any], *, is_main: bool) -> Line:
    line: Line = {"type": "result"}
    extra = {}
    for mime, value in data.items():
        if mime in FIELDS:
            line[FIELDS[mime]] = _unquoted(value) if mime == "text/plain" else value
        else:
            extra[mime] = value
    if extra:
        line["extra"] = extra
    line["is_main_result"] = is_main
    return line


def _unquoted(text: Any) -> Any:
    """Strings are shown as their content: the SDKs hand `text` to people and to models."""
    if isinstance(text, str) and len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def error(content: Mapping[str, Any]) -> Line:
    traceback = content.get("traceback") or []
    return failure(
        str(content.get("ename") or "Error"),
        str(content.get("evalue") or ""),
        "\n".join(map(str, traceback)) if isinstance(traceback, list) else str(traceback),
    )


def failure(name: str, value: str, traceback: str = "") -> Line:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}
