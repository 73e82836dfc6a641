"""The model gateway: knows the caller by a virtual key, adds the host's key, passes everything else through, counts what it cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import aiohttp
from starlette.types import ASGIApp, Receive, Scope, Send

from sandlot.platform.core.errors import Forbidden, Unauthorized
from sandlot.platform.core.models import BudgetScope, ModelApi, ModelCall, ModelClient, ModelTokens
from sandlot.platform.core.ports import Clock
from sandlot.platform.models.budgets import Budgets, BudgetSpentError, Reservation
from sandlot.platform.models.dialects import ModelOperation, ModelRoute, error_body, guess_api, recognise
from sandlot.platform.models.keys import ModelKeys
from sandlot.platform.models.prices import Prices
from sandlot.platform.models.requests import ModelRequest, RequestRefused, outgoing, read_request
from sandlot.platform.models.routing import Candidate, ModelRouter, is_allowed
from sandlot.platform.models.upstream import CHUNK, EndpointFailed, Upstream, answer_headers
from sandlot.platform.models.usage import UsageReader

AT_ONCE = 64  # requests of one client
ELSEWHERE = frozenset({408, 429, 500, 502, 503, 504, 529})  # answers after which a fallback is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request whose caller and kind are known."""

    method: str
    query: str
    headers: Mapping[str, str]
    route: ModelRoute
    client: ModelClient
    only: str | None  # the endpoint that the caller named


class ModelGateway:
    """`/v1/messages`, `/v1/responses`, `/v1beta/models/...`, also below the name of an endpoint: `/local/v1/chat/completions`."""

    def __init__(
        self,
        *,
        keys: ModelKeys,
        router: ModelRouter,
        budgets: Budgets,
        prices: Prices,
        upstream: Upstream,
        clock: Clock,
    ) -> None:
        self.keys, self.router, self.budgets = keys, router, budgets
        self.prices, self._upstream, self._clock = prices, upstream, clock
        self._at_once: Counter[tuple[BudgetScope, str]] = Counter()
        self._settling: set[asyncio.Task[None]] = set()

    def door(self, only: tuple[BudgetScope, str] | None = None) -> ASGIApp:
        """An application for one task or session, or for everybody with a key."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._serve(scope, receive, send, only)

        return app

    async def close(self) -> None:
        """Until what calls cost is stored."""
        await asyncio.gather(*self._settling, return_exceptions=True)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, only: tuple[BudgetScope, str] | None) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, endpoint = self._path(scope["path"])
        route = recognise(scope["method"], path, headers)
        api = route.api if route is not None else guess_api(path, headers)
        query, given = _query(scope["query_string"])
        try:
            client = await self.keys.client(_secret(headers) or given, only)
            if route is None:
                raise RequestRefused(404, f"this gateway has no {scope['method']} {path[:200]}")
            asked = _Asked(
                method=scope["method"], query=query, headers=headers, route=route, client=client, only=endpoint
            )
            await self._within_limit(asked, receive, send)
        except (Unauthorized, Forbidden) as error:
            await _refuse(send, api, 401 if isinstance(error, Unauthorized) else 403, str(error))
        except BudgetSpentError as error:
            await _refuse(send, api, 402, str(error))
        except (RequestRefused, EndpointFailed) as error:
            await _refuse(send, api, error.status, str(error))

    def _path(self, path: str) -> tuple[str, str | None]:
        first, _, rest = path.lstrip("/").partition("/")
        return (f"/{rest}", first) if self.router.named(first) is not None else (path, None)

    async def _within_limit(self, asked: _Asked, receive: Receive, send: Send) -> None:
        who = (asked.client.scope, asked.client.id)
        if self._at_once[who] >= AT_ONCE:
            raise RequestRefused(429, f"{AT_ONCE} requests of this {asked.client.scope.value} are under way already")
        self._at_once[who] += 1
        try:
            if asked.route.operation is ModelOperation.LIST:
                await self._list(asked, send)
            else:
                await self._call(asked, await read_request(asked.route, receive), send)
        finally:
            self._at_once[who] -= 1
            if not self._at_once[who]:
                del self._at_once[who]

    async def _call(self, asked: _Asked, request: ModelRequest, send: Send) -> None:
        api, model = asked.route.api, request.model
        assert model is not None  # read_request refuses what names none
        candidates = self.router.candidates(api, model, asked.only)
        if not candidates:
            known = ", ".join(self.router.allowed(api)[:20]) or f"none; no endpoint speaks {api.value}"
            raise RequestRefused(404, f"the model {model!r} is not served here; there are: {known}")
        if asked.route.operation is ModelOperation.COUNT:
            await self._pass(asked, request, candidates, send)
            return
        expected = ModelTokens(input=request.input_estimate, output=request.output_estimate)
        cost = self.prices.cost(api, candidates[0].model, expected)
        reservation = await self.budgets.reserve(asked.client, cost.nano)
        try:
            await self._pass(asked, request, candidates, send, reservation)
        finally:
            self.budgets.release(reservation)

    async def _pass(
        self,
        asked: _Asked,
        request: ModelRequest,
        candidates: tuple[Candidate, ...] | Any,
        send: Send,
        reservation: Reservation | None = None,
    ) -> None:
        for number, candidate in enumerate(candidates, 1):
            is_last = number == len(candidates)
            try:
                async with self._upstream.ask(
                    candidate.endpoint,
                    asked.method,
                    asked.route.path.format(model=candidate.model),
                    query=asked.query,
                    headers=asked.headers,
                    body=outgoing(asked.route, request, candidate.model),
                ) as answer:
                    if answer.status in ELSEWHERE and not is_last:
                        continue
                    await self._answer(asked, request, candidate, answer, send, counted=reservation is not None)
                    return
            except EndpointFailed:
                if is_last:
                    raise

    async def _answer(
        self,
        asked: _Asked,
        request: ModelRequest,
        candidate: Candidate,
        answer: aiohttp.ClientResponse,
        send: Send,
        *,
        counted: bool,
    ) -> None:
        """Pass an answer on as it comes. A caller that leaves does not stop it: what was begun is paid for."""
        reader = UsageReader(asked.route.api, answer.headers.get("content-type", ""))
        began, whole = time.monotonic(), False
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": answer_headers(answer)})
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # the head is sent: all that is left is to end
                async for part in answer.content.iter_chunked(CHUNK):
                    reader.feed(part)
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                whole = True
            if not whole:
                raise ConnectionResetError("the model's answer broke off")  # so the caller sees that it is not whole
            await send({"type": "http.response.body", "body": b""})
        finally:
            if counted:
                reader.end()
                seconds = time.monotonic() - began
                self._settle(self._priced(asked, request, candidate, answer.status, reader, seconds))

    def _priced(
        self,
        asked: _Asked,
        request: ModelRequest,
        candidate: Candidate,
        status: int,
        reader: UsageReader,
        seconds: float,
    ) -> ModelCall | None:
        tokens, estimated = reader.tokens, False
        if tokens is None:
            if status >= 400:
                return None  # an error without usage costs nothing
            tokens = ModelTokens(input=request.input_estimate, output=reader.bytes // 16)
            estimated = True
        cost = self.prices.cost(asked.route.api, candidate.model, tokens)
        return ModelCall(
            at=self._clock(),
            client=asked.client,
            endpoint=candidate.endpoint.name,
            model=candidate.model,
            status=status,
            tokens=tokens,
            cost_nano=cost.nano,
            priced=cost.known,
            estimated=estimated,
            seconds=round(seconds, 3),
        )

    def _settle(self, call: ModelCall | None) -> None:
        """In a task of its own: a request that is cancelled is paid for all the same."""
        if call is not None:
            task = asyncio.create_task(self.budgets.settle(call))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _list(self, asked: _Asked, send: Send) -> None:
        """The endpoint's own list, without what is not allowed here, with the aliases."""
        endpoint = self.router.of(asked.route.api, asked.only)
        if endpoint is None:
            raise RequestRefused(404, f"no endpoint here speaks {asked.route.api.value}")
        async with self._upstream.ask(
            endpoint, "GET", asked.route.path, query=asked.query, headers=asked.headers, body=b""
        ) as answer:
            body = await answer.content.read(4 << 20)
            if answer.status == 200:
                with contextlib.suppress(ValueError, RecursionError):
                    found = json.loads(body)
                    for name in ("data", "models"):
                        if isinstance(found, dict) and isinstance(found.get(name), list):
                            found[name] = [m for m in found[name] if is_allowed(endpoint, _model_id(m))]
                    body = json.dumps(found).encode()
            headers = [*answer_headers(answer), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def _model_id(model: Any) -> str:
    name = (model.get("id") or model.get("name") or "") if isinstance(model, dict) else ""
    return str(name).removeprefix("models/")


def _secret(headers: Mapping[str, str]) -> str | None:
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key")


def _query(raw: bytes) -> tuple[str, str | None]:
    """What is passed on, and the key that Google's clients may send in it."""
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=50)
    key = next((value for name, value in pairs if name == "key"), None)
    return urlencode([(name, value) for name, value in pairs if name != "key"]), key


async def _refuse(send: Send, api: ModelApi, status: int, message: str) -> None:
    body = error_body(api, status, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
