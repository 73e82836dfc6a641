"""What every route shares: keys, error bodies, limits; and the routes about the server, its templates and teams."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.servers import Doors, head_of, open_doors, raw_service
from tests.fakes import FakeNode

from sandlot.engine.api.errors import STATUS, status_of
from sandlot.engine.core import errors as engine_errors
from sandlot.engine.core.errors import EngineError, MachineFailed, Unavailable
from sandlot.server import http as api_server
from sandlot.server.failures import describe


def test_every_error_of_the_engine_has_a_status() -> None:
    classes = {kind for _, kind in inspect.getmembers(engine_errors, inspect.isclass) if issubclass(kind, EngineError)}
    assert classes == set(STATUS)
    for kind in classes:
        assert status_of(kind("x")) == STATUS[kind]


def test_an_error_without_a_row_counts_as_its_parent() -> None:
    class Odd(engine_errors.NotFound): ...

    assert status_of(Odd("x")) == 404


def test_problems_are_told_in_words() -> None:
    found = [
        {"type": "missing", "loc": ("body", "templateID"), "msg": "Field required"},
        *({"type": "x", "loc": ("query", "limit"), "msg": "Value error, too much"} for _ in range(4)),
    ]
    assert describe(found) == "templateID: field required; query limit: too much; query limit: too much; and 2 more"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes"), ("POST", "/sandboxes"), ("GET", "/sandboxes"),
        ("GET", "/sandboxes/iabc"), ("DELETE", "/sandboxes/iabc"), ("GET", "/templates"), ("GET", "/teams"),
        ("POST", "/sandboxes/iabc/timeout"), ("PUT", "/sandboxes/iabc/network"), ("GET", "/sandboxes/metrics"),
        ("GET", "/snapshots"), ("POST", "/v3/templates"), ("GET", "/sandboxes/iabc/logs"),
    ],
)  # fmt: skip
async def test_every_route_needs_a_key(shared: Doors, method: str, path: str) -> None:
    async with shared.client(key=None) as client:
        for headers in ({}, {"X-API-KEY": "e2b_wrong"}, {"X-API-KEY": "x" * 5000}, {"Authorization": "Bearer e2b_no"}):
            body = {"templateID": "base", "timeout": 1} if method in ("POST", "PUT") else None
            response = await client.request(method, path, headers=headers, json=body, params={"sandbox_ids": "i1"})
            assert response.status_code == 401, response.text
            assert response.json()["code"] == 401 and "./sandlot env" in response.json()["message"]


async def test_a_key_may_come_as_a_bearer_token_and_be_revoked(doors: Doors) -> None:
    key, secret = await doors.access.create_key(doors.team_id, "second")
    async with doors.client(key=None) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        teams = await client.get("/teams")
        assert teams.json() == [{"teamID": doors.team_id, "name": "default", "apiKey": secret, "isDefault": True}]
        await doors.access.revoke(key.id)
        assert (await client.get("/teams")).status_code == 401


async def test_unknown_routes_and_methods_have_the_same_body(shared: Doors) -> None:
    async with shared.client() as client:
        for path in ("/nope", "/sandboxes/", "/v9/sandboxes", "/sandboxes/i/x/y", "/%00", "/sandboxes/%00/x/y"):
            response = await client.get(path)
            assert response.status_code == 404 and response.json()["code"] == 404, path
        wrong = await client.patch("/v2/sandboxes")
        assert wrong.status_code == 405 and wrong.json()["code"] == 405 and "allow" in wrong.headers


@pytest.mark.parametrize("sandbox_id", ["%00", "%2e%2e", "A", "i%20x", "ä", "%ff", "i" * 300, "%F0%9F%92%A9"])
async def test_an_id_that_cannot_be_one_is_not_found(shared: Doors, sandbox_id: str) -> None:
    async with shared.client() as client:
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/metrics"), ("GET", "/logs"), ("POST", "/pause")):
            response = await client.request(method, f"/sandboxes/{sandbox_id}{path}")
            assert response.status_code in (404, 405), (method, path, response.text)


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff\xfe", b'{"templateID": "base\xff"}', b"[" * 100_000, b'{"timeout": NaN}', b"", b"null",
     b'{"templateID":"base","timeout":1e400}', b'{"templateID":"base","timeout":' + b"9" * 5000 + b"}"],
)  # fmt: skip
async def test_what_is_no_json_is_a_bad_request(shared: Doors, body: bytes) -> None:
    async with shared.client() as client:
        for kind in ("application/json", "text/plain", "application/octet-stream"):
            response = await client.post("/v2/sandboxes", content=body, headers={"Content-Type": kind})
            assert response.status_code == 400 and response.json()["code"] == 400, response.text


async def test_a_body_beyond_the_limit_is_refused_with_and_without_a_length(shared: Doors) -> None:
    async def chunks():  # type: ignore[no-untyped-def]
        for _ in range(40):
            yield b" " * 65536

    async with shared.client() as client:
        sized = await client.post("/v2/sandboxes", content=b" " * (2 << 20))
        assert sized.status_code == sized.json()["code"] == 413
        unsized = await client.post("/v2/sandboxes", content=chunks())
        assert unsized.status_code == unsized.json()["code"] == 413
        assert "SANDLOT_MAX_BODY_MB" in unsized.json()["message"]


async def exchange(doors: Doors, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_and_hung_up_on(shared: Doors, request_: bytes) -> None:
    answer = await exchange(shared, request_)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == 400


async def test_a_head_without_end_is_refused(shared: Doors) -> None:
    endless = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(400))
    answer = await exchange(shared, endless)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    line = b"GET /" + b"a" * 400_000
    answer = await exchange(shared, line)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


async def test_pipelined_requests_are_answered_in_order(shared: Doors) -> None:
    first = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    answer = await exchange(shared, first + b"GET /nope HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.index(b"HTTP/1.1 200") < answer.index(b"HTTP/1.1 404")


async def test_the_server_tells_about_itself_without_a_key(doors: Doors) -> None:
    await doors.create()
    async with doors.client(key=None) as client:
        health = await client.get("/health")
        assert health.status_code == 200 and health.json() == {"status": "ok", "version": "0.0.0"}
        assert (await client.get("/")).json()["docs"] == "/docs"
        assert (await client.get("/docs")).status_code == 200
        metrics = (await client.get("/metrics")).text
    assert 'sandlot_sandboxes{state="running"} 1.0' in metrics
    assert 'sandlot_requests_total{method="POST",route="/v2/sandboxes",status="201"} 1.0' in metrics
    assert "sandlot_create_seconds_count 1.0" in metrics and "sandlot_open_connections 0.0" in metrics


async def test_every_answer_has_an_id_that_the_caller_may_choose(shared: Doors) -> None:
    async with shared.client() as client:
        assert len((await client.get("/health")).headers["x-request-id"]) == 16
        given = await client.get("/nope", headers={"X-Request-Id": "my-request-1"})
        assert given.headers["x-request-id"] == "my-request-1"
        odd = await client.get("/nope", headers={"X-Request-Id": "a b\tc"})
        assert odd.headers["x-request-id"] != "a b\tc"


async def test_templates_can_be_read_where_none_are_built(doors: Doors) -> None:
    async with doors.client() as client:
        for path in ("/templates?teamID=x", "/v2/templates", "/default-templates"):
            listed = (await client.get(path)).json()
            assert [row["templateID"] for row in listed] == ["base"]
            assert (
                listed[0]["createdBy"] is None and "lastSpawnedAt" in listed[0] and listed[0]["buildStatus"] == "ready"
            )
        one = (await client.get("/templates/base")).json()
        assert one["names"] == ["base"] and len(one["builds"]) == 1
        assert (await client.get("/templates/aliases/base")).json() == {"templateID": "base", "public": True}
        for missing in ("/templates/nope", "/templates/aliases/nope", "/templates/%00", "/templates/aliases/%00"):
            assert (await client.get(missing)).status_code == 404
        build = "/templates/a/builds/b"
        asked: list[tuple[str, str, Any]] = [
            ("POST", "/v3/templates", {"name": "a"}), ("POST", "/templates/tags", {"target": "a", "tags": ["b"]}),
            ("DELETE", "/templates/tags", {"name": "a", "tags": ["b"]}), ("POST", f"/v2{build}", {}),
            ("GET", f"{build}/status", None), ("GET", f"/templates/a/files/{'0' * 64}", None),
            ("PATCH", "/v2/templates/a", {}), ("GET", f"{build}/logs", None), ("GET", "/templates/a/tags", None),
        ]  # fmt: skip
        for method, path, body in asked:
            response = await client.request(method, path, json=body)
            assert response.status_code == 400 and "does not build" in response.json()["message"], path
        assert (await client.delete("/templates/base")).status_code == 400
        assert (await client.delete("/templates/nope")).status_code == 404


async def test_pages_of_templates(doors: Doors) -> None:
    from dataclasses import replace

    base = await doors.templates.resolve(None, "base")
    assert base is not None
    for number in range(3):
        await doors.templates.put(replace(base, id=f"t{number}", name=f"name{number}"))
    async with doors.client() as client:
        first = await client.get("/v2/templates", params={"limit": 3})
        assert len(first.json()) == 3
        rest = await client.get("/v2/templates", params={"limit": 3, "nextToken": first.headers["x-next-token"]})
        assert [row["templateID"] for row in rest.json()] == ["t2"] and "x-next-token" not in rest.headers


@pytest.mark.parametrize(
    ("error", "status"), [(MachineFailed("out of slots"), 500), (Unavailable("no runsc"), 503), (KeyError("x"), 500)]
)
async def test_a_failure_of_the_host_is_clear(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def fail(self: FakeNode, new: object) -> None:
        raise error

    monkeypatch.setattr(FakeNode, "start", fail)
    async with doors.client() as client:
        response = await client.post("/v2/sandboxes", json={"templateID": "base"})
        assert response.status_code == response.json()["code"] == status


async def test_open_streams_do_not_hold_up_the_end_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "SHUTDOWN_S", 100)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with raw_service(hang) as port:
        async with open_doors(tmp_path) as doors:
            sandbox = (await doors.create())["sandboxID"]
            doors.ports[80] = port
            reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
            lines = [f"{name}: {value}" for name, value in doors.route(sandbox, 80).items()]
            writer.write("\r\n".join(["GET / HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
            await asyncio.wait_for(reader.readuntil(b"hi\r\n"), 60)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 60
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
