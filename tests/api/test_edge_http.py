"""HTTP through the edge, against real servers that play the machine."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from tests.api.doors import Doors, head_of, open_doors, raw_service, service, until

from sandlot.engine.errors import GuestUnresponsive, Unavailable
from sandlot.engine.model import ENVD_PORT

CHUNK = bytes(range(256)) * 256  # 64 KiB


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was asked: request line, headers, digest and size of the body."""
    digest, size, more = hashlib.sha256(), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        digest.update(message["body"])
        size += len(message["body"])
        more = message["more_body"]
    answer = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": [[k.decode(), v.decode("latin-1")] for k, v in scope["headers"]],
        "sha256": digest.hexdigest(),
        "size": size,
    }
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@pytest.fixture
async def sandbox(doors: Doors) -> str:
    return str((await doors.create())["sandboxID"])


async def raw(doors: Doors, request: bytes, *, until_close: bool = True) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(-1) if until_close else head_of(reader), 60)
    finally:
        writer.transport.abort()


def request(doors: Doors, sandbox: str, line: str, *headers: str, port: int = 8000, close: bool = True) -> bytes:
    lines = [line, f"Host: 127.0.0.1:{doors.port}", f"E2b-Sandbox-Id: {sandbox}", f"E2b-Sandbox-Port: {port}"]
    return "\r\n".join([*lines, *headers, *(["Connection: close"] if close else []), "", ""]).encode()


async def test_the_loop_is_uvloop() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


async def test_a_request_arrives_as_it_was_sent(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        headers = [*doors.route(sandbox, 8000).items(), ("X-Twice", "1"), ("X-Twice", "2")]
        response = await client.post("/a%2Fb/../c//d%20e?q=%2B+1&q=2&empty=", headers=headers, content=b"hello")
    seen = response.json()
    assert seen["path"] == "/a%2Fb/../c//d%20e" or seen["path"].endswith("c//d%20e")  # the client may resolve dots
    assert seen["query"] == "q=%2B+1&q=2&empty="
    assert [v for k, v in seen["headers"] if k == "x-twice"] == ["1", "2"]
    assert seen["size"] == 5 and seen["method"] == "POST"
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]


async def test_a_raw_path_is_not_rewritten(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port:
        doors.ports[8000] = port
        answer = await raw(doors, request(doors, sandbox, "GET /a/../b/./%7Ec//%41?x=%7e&y=a%2fb HTTP/1.1"))
    seen = json.loads(answer.partition(b"\r\n\r\n")[2].split(b"\r\n")[1])
    assert (seen["path"], seen["query"]) == ("/a/../b/./%7Ec//%41", "x=%7e&y=a%2fb")


async def test_hop_headers_stay_and_forwarded_headers_are_added(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port:
        doors.ports[8000] = port
        lines = ["Connection: close, X-Secret-Hop", "X-Secret-Hop: 1", "TE: trailers", "Proxy-Authorization: x"]
        line = "GET / HTTP/1.1"
        answer = await raw(doors, request(doors, sandbox, line, *lines, close=False))
    seen = dict(json.loads(answer.partition(b"\r\n\r\n")[2].split(b"\r\n")[1])["headers"])
    assert not {"x-secret-hop", "te", "proxy-authorization"} & seen.keys()
    assert seen["x-forwarded-for"] == "127.0.0.1" and seen["x-forwarded-proto"] == "http"
    assert seen["x-forwarded-host"] == seen["host"] == f"127.0.0.1:{doors.port}"
    assert not {"user-agent", "accept", "accept-encoding"} & seen.keys()  # nothing the client did not send


async def test_host_names_a_sandbox_without_headers(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        response = await client.get("/x", headers={"Host": f"8000-{sandbox}.localhost:{doors.port}"})
        assert response.json()["path"] == "/x"
        # Headers count only where the Host cannot name a sandbox.
        other = {"Host": f"8000-{sandbox}.localhost", **doors.route("iunknown00000")}
        assert (await client.get("/x", headers=other)).status_code == 200


async def test_large_bodies_stream_both_ways_in_bounded_memory(doors: Doors, sandbox: str) -> None:
    count = 800  # 50 MiB

    async def back(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})

    async def body() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield CHUNK

    async with service(back) as port, aiohttp.ClientSession() as client:
        doors.ports[8000] = port
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with client.post(doors.url, data=body(), headers=doors.route(sandbox, 8000)) as response:
            digest = hashlib.sha256()
            async for chunk in response.content.iter_any():
                digest.update(chunk)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert digest.hexdigest() == hashlib.sha256(CHUNK * count).hexdigest()
    assert grown_mib < 30  # client, edge and service together


async def test_a_slow_reader_holds_the_sandbox_back(doors: Doors, sandbox: str) -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(CHUNK)
            await writer.drain()
            written += len(CHUNK)

    async with raw_service(flood) as port:
        doors.ports[8000] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port, limit=1024)
        writer.write(request(doors, sandbox, "GET / HTTP/1.1"))
        await reader.readline()
        last = -1
        while written != last:  # until nothing moves any more
            last = written
            await asyncio.sleep(0.3)
        assert written < 40 << 20
        writer.transport.abort()
        await until(lambda: doors.edge.open_connections(sandbox) == 0)


async def test_each_chunk_arrives_when_it_is_sent(doors: Doors, sandbox: str) -> None:
    step = asyncio.Event()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for text in (b"data: 1\n\n", b"data: 2\n\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await step.wait()
            step.clear()
        writer.write(b"0\r\n\r\n")

    async with raw_service(events) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        async with client.stream("GET", "/", headers=doors.route(sandbox, 8000)) as response:
            chunks = response.aiter_raw()
            assert response.headers["content-type"] == "text/event-stream"
            for expected in (b"data: 1\n\n", b"data: 2\n\n"):
                assert await asyncio.wait_for(anext(chunks), 60) == expected
                step.set()


async def test_a_request_body_arrives_while_the_answer_is_on_its_way(doors: Doors, sandbox: str) -> None:
    async def duplex(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"].upper(), "more_body": more})

    async with service(duplex) as port:
        doors.ports[8000] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "POST / HTTP/1.1", "Transfer-Encoding: chunked"))
        for word in (b"one", b"two"):
            writer.write(b"3\r\n%s\r\n" % word)
            assert await asyncio.wait_for(reader.readuntil(word.upper()), 60)
        writer.write(b"0\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"0\r\n\r\n")
        writer.close()


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_machine_that_dies_in_the_middle_cuts_the_client(doors: Doors, sandbox: str, framing: str) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        if framing == "chunked":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        await writer.drain()
        writer.transport.abort()

    async with raw_service(die) as port:
        doors.ports[8000] = port
        answer = await raw(doors, request(doors, sandbox, "GET / HTTP/1.1"))
    assert b"hello" in answer and not answer.endswith(b"0\r\n\r\n")


async def test_killing_a_sandbox_cuts_its_streams_and_then_it_is_not_found(doors: Doors, sandbox: str) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with raw_service(hang) as port, doors.client() as client:
        doors.ports[ENVD_PORT] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "GET /stream HTTP/1.1", port=ENVD_PORT))
        await asyncio.wait_for(reader.readuntil(b"hi\r\n"), 60)
        assert (await client.delete(f"/sandboxes/{sandbox}")).status_code == 204
        with pytest.raises(ConnectionResetError):  # no final chunk, and no clean end that could be taken for one
            await asyncio.wait_for(reader.read(), 60)
        gone = await client.get("/health", headers=doors.route(sandbox))
        assert gone.status_code == 502
        assert gone.json() == {"sandboxId": sandbox, "message": "The sandbox was not found", "code": 502}
        writer.close()


async def test_a_client_that_leaves_is_noticed_at_once(doors: Doors, sandbox: str) -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        if await reader.read(1) == b"":
            left.set()

    async with raw_service(silent) as port:
        doors.ports[8000] = port
        _reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "GET / HTTP/1.1"))
        await until(lambda: doors.edge.open_connections(sandbox) == 1)
        writer.close()
        await asyncio.wait_for(left.wait(), 60)
        await until(lambda: doors.edge.open_connections(sandbox) == 0)


async def test_half_an_upload_is_never_taken_for_a_whole_one(doors: Doors, sandbox: str) -> None:
    seen: list[bytes] = []
    done = asyncio.Event()

    async def receive_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        seen.append(await reader.read())
        done.set()

    async with raw_service(receive_all) as port:
        doors.ports[8000] = port
        _reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"4\r\nhalf\r\n")
        await until(lambda: doors.edge.open_connections(sandbox) == 1)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.wait_for(done.wait(), 60)
    assert not seen[0].endswith(b"0\r\n\r\n")


async def test_compressed_answers_pass_untouched(doors: Doors, sandbox: str) -> None:
    packed = gzip.compress(b"x" * 1000)

    async def zipped(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-encoding", b"gzip"), (b"content-length", str(len(packed)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": packed})

    async with service(zipped) as port:
        doors.ports[8000] = port
        answer = await raw(doors, request(doors, sandbox, "GET / HTTP/1.1"))
    assert answer.endswith(packed) and b"content-encoding: gzip" in answer.lower()


@pytest.mark.parametrize(
    ("method", "head"), [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Not Modified")]
)
async def test_answers_without_a_body_end_at_their_head(doors: Doors, sandbox: str, method: str, head: str) -> None:
    async def bodiless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head_of(reader)
            length = b"Content-Length: 12\r\n" if b"200" in head.encode() else b""
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 %s\r\n%sX-A: 1\r\n\r\n" % (head.encode(), length))

    async with raw_service(bodiless) as port:
        doors.ports[8000] = port
        two = request(doors, sandbox, f"{method} / HTTP/1.1", close=False)
        answer = await raw(doors, two + request(doors, sandbox, f"{method} / HTTP/1.1"))
    assert answer.lower().count(f"http/1.1 {head.lower()}".encode()) == 2
    assert answer.lower().count(b"x-a: 1") == 2 and answer.endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in answer.lower()


async def test_a_closed_port_is_told_from_a_missing_sandbox(doors: Doors, sandbox: str) -> None:
    async with doors.client(key=None) as client:
        closed = await client.get("/", headers=doors.route(sandbox, 4321))
        assert closed.status_code == 502
        assert closed.json() == {
            "sandboxId": sandbox,
            "port": 4321,
            "message": "The sandbox is running but port is not open",
            "code": 502,
        }
        missing = await client.get("/", headers=doors.route("i0000000000000000nope", 4321))
        assert missing.status_code == 502 and "was not found" in missing.json()["message"]
        assert doors.node.asked == [4321]


async def test_browsers_get_a_page_unless_they_ask_for_json(doors: Doors) -> None:
    route = doors.route("i0000000000000000nope", 80)
    agent = {"User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140"}
    async with doors.client(key=None) as client:
        page = await client.get("/", headers={**route, **agent, "Accept": "text/html"})
        assert page.status_code == 502 and page.headers["content-type"].startswith("text/html")
        plain = await client.get("/", headers={**route, **agent, "Accept": "application/json"})
        assert plain.headers["content-type"].startswith("application/json")


async def test_a_service_on_loopback_is_reached_through_a_relay_that_is_remembered(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.node.relays[3000] = 40001
        doors.ports[40001] = port
        for number in range(3):
            response = await client.post("/", headers=doors.route(sandbox, 3000), content=b"x" * number)
            assert response.status_code == 200 and response.json()["size"] == number
    assert doors.node.asked == [3000]


async def test_a_relay_that_went_away_is_asked_for_again(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.node.relays[3000] = 40001
        doors.ports[40001] = port
        assert (await client.get("/", headers=doors.route(sandbox, 3000))).status_code == 200
        doors.node.relays[3000] = 40002
        doors.ports[40001], doors.ports[40002] = 1, port
        assert (await client.get("/", headers=doors.route(sandbox, 3000))).status_code == 200
    assert doors.node.asked == [3000, 3000]


SPELLINGS = (
    "/init //init /./init /%69nit /init/ /INIT /x/../init /%2e/init /%2569nit /init?x=1 /init;a=b /%2Finit /init/x "
    "/relay /freeze /unfreeze /collapse /fsfreeze /fsthaw /logs /stillness"
)


async def test_routes_of_the_engine_are_closed_however_they_are_spelled(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port:
        doors.ports[ENVD_PORT] = doors.ports[8000] = port
        for path in SPELLINGS.split():
            for line in (f"POST {path} HTTP/1.1", f"POST http://127.0.0.1:{doors.port}{path} HTTP/1.1"):
                closed = await raw(doors, request(doors, sandbox, line, port=ENVD_PORT))
                assert closed.startswith(b"HTTP/1.1 404"), line
            assert (await raw(doors, request(doors, sandbox, f"POST {path} HTTP/1.1"))).startswith(b"HTTP/1.1 200")
        opened = await raw(doors, request(doors, sandbox, "GET /files/init HTTP/1.1", port=ENVD_PORT))
        assert opened.startswith(b"HTTP/1.1 200")


async def test_private_ports_need_the_token_and_do_not_see_it(doors: Doors) -> None:
    created = await doors.create(network={"allowPublicTraffic": False})
    sandbox, token = created["sandboxID"], created["trafficAccessToken"]
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = doors.ports[ENVD_PORT] = port
        assert (await client.get("/", headers=doors.route(sandbox, 8000))).status_code == 403
        wrong = {**doors.route(sandbox, 8000), "e2b-traffic-access-token": token[:-1] + "x"}
        assert (await client.get("/", headers=wrong)).status_code == 403
        right = {**doors.route(sandbox, 8000), "e2b-traffic-access-token": token}
        response = await client.get("/", headers=right)
        assert response.status_code == 200 and token not in response.text
        assert (await client.get("/files", headers=doors.route(sandbox))).status_code == 200  # envd has its own


async def test_the_host_that_services_see_can_be_masked(doors: Doors) -> None:
    sandbox = (await doors.create(network={"maskRequestHost": "app.example:${PORT}"}))["sandboxID"]
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = doors.ports[ENVD_PORT] = port
        seen = dict((await client.get("/", headers=doors.route(sandbox, 8000))).json()["headers"])
        assert seen["host"] == "app.example:8000" and seen["x-forwarded-host"].startswith("127.0.0.1")
        seen = dict((await client.get("/", headers=doors.route(sandbox))).json()["headers"])
        assert seen["host"].startswith("127.0.0.1")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"E2b-Sandbox-Id": "iabcdef"}, "E2b-Sandbox-Port"),
        ({"E2b-Sandbox-Port": "80"}, "E2b-Sandbox-Id"),
        ({"E2b-Sandbox-Id": "i../../x", "E2b-Sandbox-Port": "80"}, "Invalid sandbox id"),
        ({"E2b-Sandbox-Id": "iabc", "E2b-Sandbox-Port": "99999"}, "Invalid sandbox port"),
        ({"E2b-Sandbox-Id": "iabc", "E2b-Sandbox-Port": "-1"}, "Invalid sandbox port"),
    ],
)
async def test_wrong_routing_headers_are_a_bad_request(doors: Doors, headers: dict[str, str], said: str) -> None:
    async with doors.client(key=None) as client:
        response = await client.get("/", headers=headers)
        assert response.status_code == 400 and said in response.json()["message"]


async def test_signed_urls_without_an_id_find_their_sandbox(doors: Doors) -> None:
    from sandlot.engine.routing import signature

    first, second = await doors.create(), await doors.create()
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[ENVD_PORT] = port
        for created in (first, second):
            signed = signature("/home/a b", "read", "user", created["envdAccessToken"], "1999999999")
            query = {"path": "/home/a b", "username": "user", "signature": signed, "signature_expiration": "1999999999"}
            response = await client.get("/files", params=query)
            assert response.status_code == 200 and response.json()["path"] == "/files"
        before = doors.telemetry.edge_passed.labels("http")._value.get()
        assert before == 2
        query["signature"] = signed[:-2] + "xx"
        wrong = await client.get("/files", params=query)
        assert wrong.status_code == 400 and "signed file URL" in wrong.json()["message"]
        assert (await client.get("/files", params={"path": "/x"})).status_code == 404  # the API knows no such route


async def test_a_preflight_reaches_the_sandbox(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[ENVD_PORT] = port
        asked = {**doors.route(sandbox), "Origin": "http://x.test", "Access-Control-Request-Method": "POST"}
        response = await client.options("/files", headers=asked)
        assert response.status_code == 200 and response.json()["method"] == "OPTIONS"


async def test_too_many_requests_at_once_are_refused(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await echo(scope, receive, send)

    async with open_doors(tmp_path, most=2) as doors, service(wait) as port, doors.client(key=None) as client:
        sandbox = (await doors.create())["sandboxID"]
        doors.ports[8000] = port
        waiting = [asyncio.create_task(client.get("/", headers=doors.route(sandbox, 8000))) for _ in range(2)]
        await until(lambda: doors.edge.open_connections(sandbox) == 2)
        refused = await client.get("/", headers=doors.route(sandbox, 8000))
        assert refused.status_code == 429 and refused.json()["connectionLimit"] == 2
        go.set()
        assert [response.status_code for response in await asyncio.gather(*waiting)] == [200, 200]


async def test_draining_waits_for_what_is_open_and_cuts_the_rest(doors: Doors, sandbox: str) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with raw_service(hang) as port:
        doors.ports[8000] = port
        stream = asyncio.create_task(raw(doors, request(doors, sandbox, "GET / HTTP/1.1")))
        await until(lambda: doors.edge.open_connections(sandbox) == 1)
        await asyncio.sleep(0.05)
        assert await doors.edge.drain(sandbox, grace_s=0.1) == 1
        with pytest.raises(ConnectionResetError):
            await stream
        assert doors.edge.open_connections(sandbox) == 0


async def test_no_connection_of_an_ended_sandbox_is_used_for_another(doors: Doors) -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await head_of(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with raw_service(count) as port, doors.client() as client:
        doors.ports[8000] = port
        first = (await doors.create())["sandboxID"]
        for _ in range(3):
            assert (await client.get("/", headers=doors.route(first, 8000))).text == "ok"
        assert connections == 1  # kept alive
        await client.delete(f"/sandboxes/{first}")
        second = (await doors.create())["sandboxID"]
        assert (await client.get("/", headers=doors.route(second, 8000))).text == "ok"
        assert connections == 2


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"", b"HTTP/1.1 999 Odd\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nX: a\x01b\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000],
)  # fmt: skip
async def test_a_broken_answer_is_a_bad_gateway(doors: Doors, sandbox: str, answer: bytes) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with raw_service(broken) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        response = await client.get("/", headers=doors.route(sandbox, 8000))
        assert response.status_code == 502 and response.json()["sandboxId"] == sandbox


async def test_https_ports_are_dialled_with_tls(doors: Doors, tmp_path: Path) -> None:
    from tests.api.doors import serving

    from sandlot.engine.api.server import build_server
    from sandlot.tls import certificate_for

    certificate = certificate_for("inside.test", tmp_path / "tls")
    sandbox = (await doors.create(network={"httpsPorts": [8443]}))["sandboxID"]
    server = build_server(echo, host="127.0.0.1", port=0, certificate=(certificate.chain, certificate.key))
    async with serving(server), doors.client(key=None) as client:
        doors.ports[8443] = doors.ports[8444] = server.port
        assert (await client.get("/s", headers=doors.route(sandbox, 8443))).json()["path"] == "/s"
        assert (await client.get("/s", headers=doors.route(sandbox, 8444))).status_code == 502  # plain HTTP to TLS


async def test_other_upgrades_are_refused(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port:
        doors.ports[8000] = port
        headers = ("Connection: Upgrade", "Upgrade: tls/1.0", "Content-Length: 2")
        answer = await raw(doors, request(doors, sandbox, "POST / HTTP/1.1", *headers, close=False) + b"hi")
    assert answer.startswith(b"HTTP/1.1 501") and b"connection: close" in answer


async def test_an_offer_of_http_2_is_ignored(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port:
        doors.ports[8000] = port
        offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA", "Content-Length: 16")
        first = request(doors, sandbox, "POST / HTTP/1.1", *offer, close=False) + b"\r\nUpgrade: h2c\r\n"
        answer = await raw(doors, first + request(doors, sandbox, "GET /second HTTP/1.1"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2 and b'"size": 16' in answer and b"/second" in answer
    assert hashlib.sha256(b"\r\nUpgrade: h2c\r\n").hexdigest().encode() in answer  # the body is left alone
    assert b"h2c" not in answer and b"x-offer" not in answer


async def test_two_hosts_are_one_too_many(doors: Doors, sandbox: str) -> None:
    answer = await raw(doors, request(doors, sandbox, "GET / HTTP/1.1", f"Host: 80-{sandbox}.localhost"))
    assert answer.startswith(b"HTTP/1.1 400")


async def test_a_relay_that_cannot_be_asked_is_a_closed_port(
    doors: Doors, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(sandbox_id: str, port: int) -> int | None:
        raise GuestUnresponsive("envd does not answer")

    monkeypatch.setattr(doors.edge._ways, "_relay", silent)
    async with doors.client(key=None) as client:
        response = await client.get("/", headers=doors.route(sandbox, 8000))
        assert response.status_code == 502 and "port is not open" in response.json()["message"]


async def test_a_store_that_is_away_is_a_503(doors: Doors, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(sandbox_id: str) -> None:
        raise Unavailable("the database cannot be reached")

    monkeypatch.setattr(doors.edge._routes, "_find", away)
    async with doors.client(key=None) as client:
        response = await client.get("/", headers=doors.route("iother0000", 8000))
        assert response.status_code == 503 and "database" in response.json()["message"]


async def test_a_half_closed_connection_gets_a_quick_answer_and_no_endless_one(doors: Doors, sandbox: str) -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()
        left.set()

    async def half(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    async with service(echo) as port, raw_service(hang) as endless:
        doors.ports[8000], doors.ports[8001] = port, endless
        assert b'"status":"ok"' in await half(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"/quick"' in await half(request(doors, sandbox, "GET /quick HTTP/1.1", close=False))
        cut = await half(request(doors, sandbox, "GET / HTTP/1.1", port=8001, close=False))
        assert not cut.endswith(b"0\r\n\r\n")
        await asyncio.wait_for(left.wait(), 60)
        unfinished = request(doors, sandbox, "POST / HTTP/1.1", "Content-Length: 100", close=False) + b"half"
        assert await half(unfinished) == b""
        await until(lambda: doors.edge.open_connections(sandbox) == 0)
