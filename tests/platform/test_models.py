"""The model gateway over real HTTP, in front of the scripted model: four protocols, virtual keys, budgets, failures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.models.script import parse
from tests.models.server import ScriptedModel
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, load_text, until

from sandlot.platform.core.models import BudgetScope

SECRET = "the-real-key-of-the-host"
CHAT = {"scenes": [{"chat": True, "turns": [{"say": "Hello.", "input_tokens": 1000, "output_tokens": 50}]}]}


@dataclass(frozen=True)
class Protocol:
    name: str
    path: str
    stream_path: str
    body: dict[str, Any]
    key_header: str

    def streamed(self) -> dict[str, Any]:
        return self.body if self.name == "gemini" else {**self.body, "stream": True}


MESSAGES = [{"role": "user", "content": "say hello"}]
GEMINI = "/v1beta/models/gemini-2.5-pro"
PROTOCOLS = [
    Protocol(
        "anthropic",
        "/v1/messages",
        "/v1/messages",
        {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": MESSAGES},
        "x-api-key",
    ),
    Protocol("responses", "/v1/responses", "/v1/responses", {"model": "gpt-5", "input": "say hello"}, "authorization"),
    Protocol(
        "chat",
        "/v1/chat/completions",
        "/v1/chat/completions",
        {"model": "gpt-5", "messages": MESSAGES},
        "authorization",
    ),
    Protocol(
        "gemini",
        f"{GEMINI}:generateContent",
        f"{GEMINI}:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "say hello"}]}]},
        "x-goog-api-key",
    ),
]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(parse(CHAT)) as served:
        yield served


def configured(url: str, more: str = "") -> str:
    return f"""
    [providers.scripted]
    kind = "local"
    [models.claude]
    api = "anthropic"
    url = "{url}"
    key_env = "REAL_KEY"
    aliases = {{ fast = "claude-haiku-4-5" }}
    [models.gpt]
    api = "openai"
    url = "{url}/v1"
    key_env = "REAL_KEY"
    models = ["gpt-*", "mystery-*"]
    [models.google]
    api = "gemini"
    url = "{url}"
    key_env = "REAL_KEY"
    {more}
    """


class World:
    def __init__(self, served: Served, provider: ScriptedProvider) -> None:
        self.served, self.provider = served, provider
        self.session, self.key = "", ""

    async def begin(self) -> None:
        async with self.served.http() as http:
            made = (await http.post("/sandboxes/create", json={"user_id": "ann", "session_id": "one"})).json()
        self.session = made["sandbox_id"]
        self.key = self.served.deps.models.gateway.keys.key(BudgetScope.SESSION, self.session)

    async def ask(self, protocol: Protocol, *, stream: bool = False, key: str | None = None) -> httpx.Response:
        secret = key or self.key
        header = f"Bearer {secret}" if protocol.key_header == "authorization" else secret
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            return await http.post(
                f"{self.served.url}/models{protocol.stream_path if stream else protocol.path}",
                json=protocol.streamed() if stream else protocol.body,
                headers={protocol.key_header: header},
            )

    async def usage(self, by: str = "model") -> list[dict[str, Any]]:
        await self.served.deps.models.gateway.close()
        async with self.served.http() as http:
            return list((await http.get("/usage", params={"by": by})).json()["usage"])


@pytest.fixture
async def world(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[World]:
    async with started(tmp_path, configured(model.url)) as made:
        yield made


class started:
    def __init__(self, place: Path, text: str) -> None:
        provider = ScriptedProvider()
        configuration = load_text(text, {"REAL_KEY": SECRET}, has_engine=True)
        self._world = World(Served(place, configuration, {"scripted": provider}), provider)

    async def __aenter__(self) -> World:
        await self._world.served.start()
        await self._world.begin()
        return self._world

    async def __aexit__(self, *_: object) -> None:
        await self._world.served.stop()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
async def test_an_answer_passes_and_its_tokens_are_counted(
    world: World, model: ScriptedModel, protocol: Protocol, stream: bool
) -> None:
    answer = await world.ask(protocol, stream=stream)
    assert answer.status_code == 200, answer.text
    assert _without_ids(answer.text) == _without_ids(await _direct(model, protocol, stream))
    assert ("text/event-stream" in answer.headers["content-type"]) == stream
    (row,) = await world.usage("model,session,user")
    assert row["group"]["session"] == world.session and row["group"]["user"] == "ann"
    assert (row["input_tokens"], row["output_tokens"], row["calls"]) == (1000, 50, 1)
    assert row["cost_usd"] > 0 and row["unpriced_calls"] == row["estimated_calls"] == 0


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
async def test_the_real_key_is_added_and_the_virtual_one_is_not_passed_on(tmp_path: Path, protocol: Protocol) -> None:
    seen: list[str] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, started(tmp_path, configured(f"http://127.0.0.1:{port}")) as world:
        answer = await world.ask(protocol)
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert SECRET in seen[0] and world.key not in seen[0]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
async def test_a_wrong_key_is_refused_in_the_words_of_the_protocol(world: World, protocol: Protocol) -> None:
    for key in ("slm_session_other_" + "0" * 40, world.key[:-1] + "x", "slp_nothing"):
        answer = await world.ask(protocol, key=key)
        assert answer.status_code == 401
        assert isinstance(answer.json()["error"]["message"], str)
    assert SECRET not in answer.text


async def test_a_key_is_worth_nothing_when_its_session_has_ended(world: World) -> None:
    async with world.served.http() as http:
        gone = await http.post("/sandboxes/delete", json={"sandbox_id": world.session, "user_id": "ann"})
        assert gone.status_code == 200, gone.text
    answer = await world.ask(PROTOCOLS[0])
    assert answer.status_code == 401 and "not at work" in answer.json()["error"]["message"]


async def test_a_key_of_the_platform_counts_for_its_user(world: World) -> None:
    answer = await world.ask(PROTOCOLS[0], key=await world.served.key("bob"))
    assert answer.status_code == 200
    assert (await world.usage("user"))[0]["group"] == {"user": "bob"}


async def test_an_alias_is_replaced_and_a_model_that_is_not_allowed_is_refused(
    world: World, model: ScriptedModel
) -> None:
    aliased = PROTOCOLS[0]
    answer = await world.ask(Protocol("a", aliased.path, aliased.path, {**aliased.body, "model": "fast"}, "x-api-key"))
    assert answer.status_code == 200
    assert (await world.usage())[0]["group"] == {"model": "claude-haiku-4-5"}
    chat = PROTOCOLS[2]
    refused = await world.ask(Protocol("c", chat.path, chat.path, {**chat.body, "model": "o9"}, "authorization"))
    assert refused.status_code == 404 and "gpt-*" in refused.json()["error"]["message"]


async def test_a_model_without_a_known_price_is_counted_high_and_labelled(world: World) -> None:
    chat = PROTOCOLS[2]
    answer = await world.ask(
        Protocol("c", chat.path, chat.path, {**chat.body, "model": "mystery-1"}, "authorization"), stream=True
    )
    assert answer.status_code == 200
    (row,) = await world.usage()
    assert row["unpriced_calls"] == 1
    assert row["cost_usd"] == pytest.approx((1000 * 15 + 50 * 75) / 1e6)


async def test_other_requests_of_an_endpoint_are_not_for_sandboxes(world: World, model: ScriptedModel) -> None:
    for method, path in (("GET", "/v1/files"), ("POST", "/v1/messages/batches"), ("DELETE", "/v1/models/x")):
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.request(method, f"{world.served.url}/models{path}", headers={"x-api-key": world.key})
        assert answer.status_code == 404, path
    assert model.asked == []


async def test_a_huge_or_broken_body_is_refused(world: World, model: ScriptedModel) -> None:
    headers, url = {"x-api-key": world.key}, f"{world.served.url}/models/v1/messages"
    bodies = [
        (b"[" * 100_000, 400),
        (b'{"model": 5}', 400),
        (b'"text"', 400),
        (b"{", 400),
        (b"x" * (33 << 20), 413),
    ]
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        for body, status in bodies:
            answer = await http.post(url, content=body, headers=headers)
            assert answer.status_code == status, body[:20]
            assert answer.json()["type"] == "error"
    assert model.asked == []


async def test_an_endpoint_that_is_away_gets_a_clear_error_and_a_fallback_is_asked(
    tmp_path: Path, model: ScriptedModel
) -> None:
    text = f"""
    [providers.scripted]
    kind = "local"
    [models.first]
    api = "anthropic"
    url = "http://127.0.0.1:1"
    fallbacks = ["second"]
    [models.second]
    api = "anthropic"
    url = "{model.url}"
    [models.alone]
    api = "openai"
    url = "http://127.0.0.1:1"
    """
    async with started(tmp_path, text) as world:
        answer = await world.ask(PROTOCOLS[0], stream=True)
        assert answer.status_code == 200 and "message_stop" in answer.text
        assert (await world.usage("endpoint"))[0]["group"] == {"endpoint": "second"}
        away = await world.ask(PROTOCOLS[2])
        assert away.status_code == 502 and "alone" in away.json()["error"]["message"]


async def test_errors_of_an_endpoint_pass_unchanged_and_cost_nothing(tmp_path: Path) -> None:
    plan = {"scenes": [{"chat": True, "turns": [{"fail": {"status": 529, "times": 5, "retry_after_s": 7}}]}]}
    with ScriptedModel(parse(plan)) as model:
        async with started(tmp_path, configured(model.url)) as world:
            answer = await world.ask(PROTOCOLS[0])
            assert answer.status_code == 529 and answer.headers["retry-after"] == "7"
            assert "scripted failure" in answer.text
            assert await world.usage() == []


async def test_a_stream_that_breaks_off_is_seen_to_be_broken_and_is_paid_for(tmp_path: Path) -> None:
    plan = {"scenes": [{"chat": True, "turns": [{"say": "Hello to all of you. " * 50, "cut": True}]}]}
    with ScriptedModel(parse(plan)) as model:
        async with started(tmp_path, configured(model.url)) as world:
            with pytest.raises(httpx.TransportError):
                await world.ask(PROTOCOLS[2], stream=True)
            (row,) = await world.usage()
            assert row["calls"] == 1 and row["estimated_calls"] == 1 and row["cost_usd"] > 0


async def test_at_the_cap_the_next_call_is_refused_with_402_and_raising_it_goes_on(world: World) -> None:
    async with world.served.http() as http:
        await http.put("/budgets/user/ann", json={"cost_usd": 0.005})
        assert (await world.ask(PROTOCOLS[0], stream=True)).status_code == 200  # 0.00375
        await world.usage()
        assert (await world.ask(PROTOCOLS[0], stream=True)).status_code == 200  # overshoots, once
        await world.usage()
        for protocol in PROTOCOLS:
            refused = await world.ask(protocol)
            assert refused.status_code == 402, protocol.name
            assert "budget of user ann" in refused.json()["error"]["message"]
        events = [e for e in await _events(world) if e["type"].startswith("budget.")]
        assert [e["type"] for e in events] == ["budget.warning", "budget.reached"]
        assert events[0]["data"]["subject"] == "ann" and events[0]["data"]["limit_usd"] == 0.005
        shown = (await http.get("/budgets", params={"user_id": "ann"})).json()["budgets"]
        mine = next(b for b in shown if b["scope"] == "user")
        assert mine["share"] >= 1 and mine["spent_tokens"] == 2100 and mine["calls"] == 2
        await http.put("/budgets/user/ann", json={"cost_usd": 5})
        assert (await world.ask(PROTOCOLS[0])).status_code == 200


async def test_calls_at_the_same_time_do_not_all_count_on_the_same_money(tmp_path: Path) -> None:
    plan = {"scenes": [{"chat": True, "turns": [{"say": "Slow.", "delay_s": 1.0, "output_tokens": 1000}]}]}
    with ScriptedModel(parse(plan)) as model:
        async with started(tmp_path, configured(model.url)) as world:
            async with world.served.http() as http:
                await http.put("/budgets/all/*", json={"cost_usd": 0.002})
            answers = await asyncio.gather(*(world.ask(PROTOCOLS[0]) for _ in range(8)))
            codes = sorted(answer.status_code for answer in answers)
            assert codes.count(402) >= 6 and codes.count(200) >= 1, codes


async def test_a_caller_that_leaves_pays_for_what_was_begun(tmp_path: Path) -> None:
    plan = {"scenes": [{"chat": True, "turns": [{"say": "Late.", "delay_s": 0.5, "input_tokens": 7}]}]}
    with ScriptedModel(parse(plan)) as model:
        async with started(tmp_path, configured(model.url)) as world:
            async with httpx.AsyncClient(trust_env=False) as http:
                with pytest.raises(httpx.ReadTimeout):
                    await http.post(
                        f"{world.served.url}/models/v1/messages",
                        json=PROTOCOLS[0].streamed(),
                        headers={"x-api-key": world.key},
                        timeout=0.2,
                    )

            async def counted() -> bool:
                return bool(await world.usage())

            await until(counted, what="the call's count")
            assert (await world.usage())[0]["input_tokens"] == 7


async def test_users_see_only_their_own_usage_and_may_set_no_limits(world: World) -> None:
    await world.ask(PROTOCOLS[0])
    await world.usage()
    key = await world.served.key("bob")
    async with world.served.http(key) as http:
        assert (await http.get("/usage", params={"by": "user", "user_id": "ann"})).json() == {"usage": []}
        assert (await http.put("/budgets/user/bob", json={"cost_usd": 99})).status_code == 403
        assert (await http.get("/budgets", params={"user_id": "ann"})).status_code == 403
        assert (await http.get("/usage", params={"by": "shoe"})).status_code == 400
        endpoints = (await http.get("/platform/models")).json()["endpoints"]
    assert [e["name"] for e in endpoints] == ["claude", "gpt", "google"]
    assert SECRET not in json.dumps(endpoints)


async def test_what_was_spent_survives_a_restart(world: World) -> None:
    await world.ask(PROTOCOLS[0])
    before = await world.usage()
    await world.served.restart()
    assert await world.usage() == before
    async with world.served.http() as http:
        budgets = (await http.get("/budgets", params={"user_id": "ann"})).json()["budgets"]
    assert {b["scope"]: b["calls"] for b in budgets} == {"user": 1, "all": 1}


async def _direct(model: ScriptedModel, protocol: Protocol, stream: bool) -> str:
    path, body = (protocol.stream_path, protocol.streamed()) if stream else (protocol.path, protocol.body)
    if protocol.name == "chat" and stream:
        body = {**body, "stream_options": {"include_usage": True}}  # the gateway asks for it
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        return (await http.post(f"{model.url}{path}", json=body)).text


def _without_ids(text: str) -> str:
    return re.sub(r"\d+", "N", text)


async def _events(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with world.served.http() as http, http.stream("GET", "/events", params={"since": "0"}) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line[5:]))
            if line.startswith(":") or any(e.get("type") == "budget.reached" for e in found):
                return found
    return found
