"""Reads what a call used from its answer, whole or streamed, without holding the answer back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sandlot.platform.core.models import ModelApi, ModelTokens

MAX_WHOLE = 32 << 20  # of an answer that is not a stream; what is longer is passed on and estimated
MAX_LINE = 16 << 20  # of one event: the last one of OpenAI's Responses repeats the whole answer
_MARKS = {ModelApi.ANTHROPIC: b'"usage"', ModelApi.OPENAI: b'"usage"', ModelApi.GEMINI: b'"usageMetadata"'}


class UsageReader:
    """Fed with the bytes of an answer as they pass. `tokens` is None until the answer told."""

    def __init__(self, api: ModelApi, content_type: str) -> None:
        self._api, self._is_stream = api, content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._rest = bytearray()
        self._too_long = False
        self.tokens: ModelTokens | None = None
        self.bytes = 0

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self._is_stream:
            if len(self._rest) + len(data) <= MAX_WHOLE:
                self._rest += data
            else:
                self._too_long = True
            return
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return
        self._keep(data[:end])
        lines, self._rest = bytes(self._rest), bytearray(data[end:])
        too_long, self._too_long = self._too_long, False
        if not too_long:
            self._lines(lines)

    def end(self) -> None:
        if self._is_stream:
            self._lines(bytes(self._rest))
        elif self._rest and not self._too_long:
            self._whole(bytes(self._rest))
        self._rest.clear()

    def _keep(self, data: bytes) -> None:
        if len(self._rest) + len(data) > MAX_LINE:
            self._rest.clear()
            self._too_long = True
        elif not self._too_long:
            self._rest += data

    def _lines(self, lines: bytes) -> None:
        """Most events tell no usage: only lines with the mark are looked at."""
        mark, place = _MARKS[self._api], 0
        while (found := lines.find(mark, place)) >= 0:
            begin = lines.rfind(b"\n", 0, found) + 1
            end = lines.find(b"\n", found)
            place = end if end >= 0 else len(lines)
            line = lines[begin:place]
            if line.startswith(b"data:"):
                self._whole(line[5:])

    def _whole(self, text: bytes) -> None:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return
        # Gemini's streams that are not events are a list of answers.
        for each in answer if isinstance(answer, list) else (answer,):
            if isinstance(each, dict):
                found = _READERS[self._api](each, self.tokens or ModelTokens())
                self.tokens = found or self.tokens


def _anthropic(answer: Mapping[str, Any], before: ModelTokens) -> ModelTokens | None:
    """At a stream's begin in `message.usage`, at its end in `usage`, which counts from the begin and repeats what it likes."""
    inner = answer.get("message")
    usage = inner.get("usage") if isinstance(inner, dict) else answer.get("usage")
    if not isinstance(usage, dict):
        return None
    cached = _number(usage, "cache_read_input_tokens", before.cached)
    written = _number(usage, "cache_creation_input_tokens", before.cache_write)
    fresh = _number(usage, "input_tokens", before.input - before.cached - before.cache_write)
    return ModelTokens(
        input=fresh + cached + written,
        output=_number(usage, "output_tokens", before.output),
        cached=cached,
        cache_write=written,
    )


def _openai(answer: Mapping[str, Any], before: ModelTokens) -> ModelTokens | None:
    """Chat Completions, Responses (in a stream: within `response`) and Embeddings."""
    inner = answer.get("response")
    usage = inner.get("usage") if isinstance(inner, dict) else answer.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details")
    return ModelTokens(
        input=_number(usage, "input_tokens", _number(usage, "prompt_tokens", before.input)),
        output=_number(usage, "output_tokens", _number(usage, "completion_tokens", before.output)),
        cached=_number(details, "cached_tokens", 0) if isinstance(details, dict) else 0,
    )


def _gemini(answer: Mapping[str, Any], before: ModelTokens) -> ModelTokens | None:
    inner = answer.get("response")  # some of Google's endpoints wrap it
    usage = (inner if isinstance(inner, dict) else answer).get("usageMetadata")
    if not isinstance(usage, dict):
        return None
    return replace(
        before,
        input=_number(usage, "promptTokenCount", before.input) + _number(usage, "toolUsePromptTokenCount", 0),
        output=_number(usage, "candidatesTokenCount", 0) + _number(usage, "thoughtsTokenCount", 0),
        cached=_number(usage, "cachedContentTokenCount", before.cached),
    )


_READERS = {ModelApi.ANTHROPIC: _anthropic, ModelApi.OPENAI: _openai, ModelApi.GEMINI: _gemini}


def _number(usage: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else otherwise
