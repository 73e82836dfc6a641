"""Logs and numbers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from tests.api.servers import Doors

from sandlot.engine.core.model import NodeCounters
from sandlot.engine.node.proxy.upstreams import ConnectionCut
from sandlot.server.telemetry import Telemetry, configure_logging, redact, request_id

SECRETS = (
    "e2b_0123456789abcdef0123456789abcdef01234567",
    "slp_0123456789abcdef0123456789abcdef0123456789abcdef",
    "slt_AbCd-EfGh_IjKlMnOpQrStUvWxYz0123456789AbCdE",
    "v1_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/AbCdE",
    "0123456789abcdef" * 4,
)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    yield stream
    root.handlers[:], root.level = before, level
    logging.getLogger("uvicorn.error").filters.clear()


def test_lines_are_json_with_the_id_of_the_request(lines: io.StringIO) -> None:
    token = request_id.set("abc")
    logging.getLogger("x").warning("hello %s", "you", extra={"sandbox": "i1"})
    request_id.reset(token)
    entry = json.loads(lines.getvalue())
    assert entry["message"] == "hello you" and entry["level"] == "warning"
    assert (entry["request_id"], entry["sandbox"]) == ("abc", "i1")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text", ["key {}", "GET /files?path=/x&signature={}&y=1", "X-API-KEY: {}", '{{"X-Access-Token": "{}"}}', "token={}"]
)
def test_secrets_never_reach_a_log(lines: io.StringIO, secret: str, text: str) -> None:
    try:
        raise ValueError(text.format(secret))
    except ValueError:
        logging.getLogger("x").exception(text.format(secret), extra={"seen": secret})
    assert secret not in lines.getvalue() and json.loads(lines.getvalue())


def test_what_is_no_secret_stays(lines: io.StringIO) -> None:
    text = "sandbox i0123456789abcdefghij ended: timeout, path=/x, template base"
    assert redact(text) == text


def test_a_connection_cut_on_purpose_is_no_error(lines: io.StringIO) -> None:
    server = logging.getLogger("uvicorn.error")
    server.error("Exception in ASGI application", exc_info=ConnectionCut("i1"))
    assert lines.getvalue() == ""
    server.error("Exception in ASGI application", exc_info=KeyError("x"))
    assert "KeyError" in lines.getvalue()


def test_text_is_for_people() -> None:
    stream = io.StringIO()
    handler = configure_logging("info", "text", stream)
    logging.getLogger("x").info("hello")
    assert stream.getvalue().endswith("INFO    x: hello\n")
    logging.getLogger().removeHandler(handler)


async def test_requests_are_counted_by_template_and_logged_without_their_query(
    doors: Doors, lines: io.StringIO
) -> None:
    created = await doors.create()
    async with doors.client() as client:
        await client.get(f"/sandboxes/{created['sandboxID']}?secret=hush")
        await client.get("/nope/hush")
        metrics = (await client.get("/metrics")).text
    assert 'route="/sandboxes/{sandboxID}"' in metrics and 'route="unknown"' in metrics
    requests = [json.loads(line) for line in lines.getvalue().splitlines() if '"sandlot.requests"' in line]
    assert [entry["message"] for entry in requests[:3]] == [
        "POST /v2/sandboxes 201",
        "GET /sandboxes/{sandboxID} 200",
        "GET unknown 404",
    ]
    assert all(entry["request_id"] and entry["ms"] >= 0 for entry in requests)
    ours = "\n".join(
        line for line in lines.getvalue().splitlines() if '"logger": "http' not in line
    )  # not the client's
    assert "hush" not in ours and created["envdAccessToken"] not in ours


async def test_states_that_emptied_go_back_to_zero() -> None:
    telemetry = Telemetry()
    first = telemetry.render(
        {"running": 2}, {"a": NodeCounters(open_connections=3), "b": NodeCounters(open_connections=2)}
    )
    assert b'sandlot_sandboxes{state="running"} 2.0' in first and b"sandlot_open_connections 5.0" in first
    text = telemetry.render({"running": 0}, {"a": NodeCounters()})
    assert b'sandlot_sandboxes{state="running"} 0.0' in text and b"sandlot_open_connections 0.0" in text
