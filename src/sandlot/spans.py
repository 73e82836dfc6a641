"""Spans: how long the parts of one request took, for whoever asked to know; for everybody else they cost next to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

MOST = 200


@dataclass(slots=True)
class Trace:
    """What was noted during one request: names with slashes for what happens inside something else, and seconds."""

    spans: list[tuple[str, float]] = field(default_factory=list)


_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)
_inside: ContextVar[str] = ContextVar("inside", default="")


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Note spans until this ends, in tasks begun inside too."""
    token = _trace.set(trace)
    try:
        yield
    finally:
        _trace.reset(token)


@contextmanager
def span(name: str) -> Iterator[None]:
    trace = _trace.get()
    if trace is None:
        yield
        return
    path = f"{_inside.get()}/{name}".lstrip("/")
    token = _inside.set(path)
    began = time.perf_counter()
    try:
        yield
    finally:
        _inside.reset(token)
        if len(trace.spans) < MOST:
            trace.spans.append((path, time.perf_counter() - began))
