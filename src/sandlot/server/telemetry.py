"""What the server tells about itself: logs that never hold a secret, and numbers for Prometheus."""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sandlot.spans import Trace, tracing

log = logging.getLogger("sandlot.requests")

request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)

_SECRETS = (
    (
        re.compile(r"(?<![0-9A-Za-z])(e2b|slp|slt)_[0-9A-Za-z_-]{8,}"),
        r"\1_…",
    ),  # keys of the API, of the platform, of tools
    (re.compile(r"(?i)\b(signature|token|access_token|api_key|password)=[^&\s\"']+"), r"\1=…"),
    (
        re.compile(
            r"(?i)\b(x-access-token|x-api-key|authorization|e2b-traffic-access-token)(['\"]?\s*[:=]\s*['\"]?)[^\s,'\"}]+( [\w+/=.-]{16,})?"
        ),
        r"\1\2…",
    ),
    (re.compile(r"\bv1_[0-9A-Za-z+/]{20,}"), "v1_…"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"), "…"),  # tokens of sandboxes
)
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_GIVEN_ID = re.compile(r"[0-9A-Za-z._-]{8,64}")
TRACE_HEADER = b"x-sandlot-trace"  # a caller who sends it is told where the time went
CREATE_ROUTES = frozenset({"/sandboxes", "/v2/sandboxes"})


def redact(text: str) -> str:
    """The text without what could be used to get in."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found = request_id.get()
        if found:
            entry["request_id"] = found
        entry |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, default=str))


class PlainText(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Quiet(logging.Filter):
    """Drops the server's complaint about connections that are cut on purpose."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and getattr(record.exc_info[1], "on_purpose", False))


def configure_logging(
    level: str, form: Literal["auto", "json", "text"] = "auto", stream: TextIO | None = None
) -> logging.Handler:
    """Send the whole process's logs to one place, in one form."""
    stream = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainText() if as_text else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    server = logging.getLogger("uvicorn.error")
    server.setLevel(logging.WARNING)  # below that it logs WebSocket addresses, with what is in their queries
    server.filters[:] = [_Quiet()]
    logging.getLogger("uvicorn.access").disabled = True
    for chatty in ("aiosqlite", "alembic.runtime.plugins", "asyncio", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return handler


class Telemetry:
    """The server's numbers. One object per server, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("sandlot_requests", "API requests.", ["method", "route", "status"], registry=registry)
        self.durations = Histogram(
            "sandlot_request_seconds", "Time to answer an API request.", ["route"], registry=registry
        )
        self.creates = Histogram(
            "sandlot_create_seconds",
            "Time to create a sandbox.",
            buckets=(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60),
            registry=registry,
        )
        self.sandboxes = Gauge("sandlot_sandboxes", "Sandboxes by state.", ["state"], registry=registry)
        self.forwarded_requests = Counter(
            "sandlot_gateway_forwarded", "Requests forwarded into sandboxes.", ["kind"], registry=registry
        )
        self.refused_requests = Counter(
            "sandlot_gateway_refused", "Requests that the gateway answered itself.", ["status"], registry=registry
        )
        self._nodes = _NodeCollector()
        registry.register(self._nodes)

    def forwarded(self, kind: str) -> None:
        self.forwarded_requests.labels(kind).inc()

    def refused(self, status: int) -> None:
        self.refused_requests.labels(str(status)).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.durations.labels(route).observe(seconds)
        if method == "POST" and status == 201 and route in CREATE_ROUTES:
            self.creates.observe(seconds)

    def render(self, sandboxes: Mapping[str, int], nodes: Mapping[str, NodeNumbers]) -> bytes:
        """Prometheus text: what was counted here, sandboxes by state, and what nodes count."""
        for state, count in sandboxes.items():
            self.sandboxes.labels(state).set(count)
        self._nodes.numbers = nodes
        return generate_latest(self.registry)


class NodeNumbers(Protocol):
    """What a node counts."""

    @property
    def warm_ready(self) -> Mapping[str, int]: ...

    @property
    def warm_hits(self) -> int: ...

    @property
    def warm_misses(self) -> int: ...

    @property
    def boot_snapshot_starts(self) -> int: ...

    @property
    def frozen(self) -> int: ...

    @property
    def open_connections(self) -> int: ...

    @property
    def checkpoint_bytes(self) -> int: ...


class _NodeCollector(Collector):
    """The numbers of all nodes, added up."""

    def __init__(self) -> None:
        self.numbers: Mapping[str, NodeNumbers] = {}

    def collect(self) -> Iterable[Metric]:
        nodes = list(self.numbers.values())
        ready = GaugeMetricFamily("sandlot_warm_pool_ready", "Warm sandboxes, by runtime.", labels=["runtime"])
        for runtime in sorted({runtime for node in nodes for runtime in node.warm_ready}):
            ready.add_metric([runtime], sum(node.warm_ready.get(runtime, 0) for node in nodes))
        yield ready
        for name, help, attribute in _COUNTERS:
            yield CounterMetricFamily(name, help, sum(getattr(node, attribute) for node in nodes))
        for name, help, attribute in _GAUGES:
            yield GaugeMetricFamily(name, help, sum(getattr(node, attribute) for node in nodes))


_COUNTERS = (
    ("sandlot_warm_pool_hits", "Creates that leased a warm sandbox.", "warm_hits"),
    ("sandlot_warm_pool_misses", "Creates that had to start one.", "warm_misses"),
    ("sandlot_boot_snapshot_starts", "Sandboxes that began with a boot snapshot.", "boot_snapshot_starts"),
)
_GAUGES = (
    ("sandlot_frozen_sandboxes", "Running sandboxes that are frozen because they are idle.", "frozen"),
    ("sandlot_open_connections", "Exchanges with sandboxes in progress.", "open_connections"),
    ("sandlot_checkpoint_bytes", "Disk that paused sandboxes and snapshots take.", "checkpoint_bytes"),
)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Watched:
    """The API with an id for every request, a line in the log and a count. Routes are counted by template, never by id."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found, status, began = _request_id(scope), 500, time.perf_counter()
        trace = Trace()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", found.encode()), *_timing(trace)]
            await send(message)

        token = request_id.set(found)
        try:
            with tracing(trace) if _wants_trace(scope) else contextlib.nullcontext():
                await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._telemetry.answered(method, route, status, seconds)
            log.info("%s %s %d", method, route, status, extra={"status": status, "ms": round(seconds * 1000, 1)})
            request_id.reset(token)


def _wants_trace(scope: Scope) -> bool:
    return any(name == TRACE_HEADER for name, _ in scope["headers"])


def _timing(trace: Trace) -> list[tuple[bytes, bytes]]:
    """The parts of a request and what each took, in milliseconds, as browsers and proxies know it."""
    told = ", ".join(f"{path.replace('/', '.')};dur={seconds * 1000:.2f}" for path, seconds in trace.spans)
    return [(b"server-timing", told.encode())] if told else []


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if _GIVEN_ID.fullmatch(text):
                return str(text)
    return secrets.token_hex(8)
