"""HTTP through the gateway, against real servers that play the machine: routes, headers, refusals."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.api.servers import Doors, head_of, open_doors, raw_service, service, until
from tests.api.wire import echo, raw, request

from sandlot.engine.core.errors import GuestUnresponsive, Unavailable
from sandlot.engine.core.model import ENVD_PORT


async def test_the_loop_is_uvloop() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


async def test_a_request_arrives_as_it_was_sent(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        headers = [*doors.route(sandbox, 8000).items(), ("X-Twice", "1"), ("X-Twice", "2")]
        response = await client.post("/a%2Fb/c//d%20e?q=%2B+1&q=2&empty=", headers=headers, content=b"hello")
    seen = response.json()
    assert seen["path"] == "/a%2Fb/c//d%20e"
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
    "/relay /freeze /unfreeze /collapse /fsfreeze /fsthaw /logs /idle /stillness"
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
    from sandlot.engine.gateway.routes import signature

    first, second = await doors.create(), await doors.create()
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[ENVD_PORT] = port
        for created in (first, second):
            signed = signature("/home/a b", "read", "user", created["envdAccessToken"], "1999999999")
            query = {"path": "/home/a b", "username": "user", "signature": signed, "signature_expiration": "1999999999"}
            response = await client.get("/files", params=query)
            assert response.status_code == 200 and response.json()["path"] == "/files"
        before = doors.telemetry.forwarded_requests.labels("http")._value.get()
        assert before == 2
        query["signature"] = signed[:-2] + "xx"
        wrong = await client.get("/files", params=query)
        assert wrong.status_code == 400 and "signed file URL" in wrong.json()["message"]
        assert (await client.get("/files", params={"path": "/x"})).status_code == 404  # the API knows no such route


async def test_calls_of_the_api_with_a_key_stay_its_own_although_their_headers_name_a_sandbox(
    doors: Doors, sandbox: str
) -> None:
    async with service(echo) as port, doors.client() as client:
        doors.ports[ENVD_PORT] = doors.ports[8000] = port
        headers = doors.route(sandbox)
        for host in (f"127.0.0.1:{doors.port}", "localhost", "sandbox.example.test"):
            path = f"/sandboxes/{sandbox}/connect"
            answer = await client.post(path, json={"timeout": 60}, headers={**headers, "Host": host})
            assert answer.status_code == 200 and answer.json()["sandboxID"] == sandbox
        assert (await client.get("/files?path=x", headers=headers)).json()["path"] == "/files"
        assert (await client.get("/sandboxes/1", headers=doors.route(sandbox, 8000))).json()["path"] == "/sandboxes/1"
        own = {**headers, "Host": f"{ENVD_PORT}-{sandbox}.localhost"}
        assert (await client.get("/sandboxes/1", headers=own)).json()["path"] == "/sandboxes/1"
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[ENVD_PORT] = port
        assert (await client.get("/sandboxes/1", headers=headers)).json()["path"] == "/sandboxes/1"


@pytest.mark.parametrize("path", ["/files", "/health", "/process.Process/List", "/filesystem.Filesystem/Stat"])
async def test_a_request_for_envd_with_its_token_alone_finds_its_sandbox(doors: Doors, path: str) -> None:
    first, second = await doors.create(), await doors.create()
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[ENVD_PORT] = port
        for made in (first, second):
            answer = await client.post(path, headers={"X-Access-Token": made["envdAccessToken"]})
            assert answer.json()["path"] == path
        refused = await client.post(path, headers={"X-Access-Token": "another"})
        assert refused.status_code == 502 and "was not found" in refused.json()["message"]
        elsewhere = await client.get("/sandboxes", headers={"X-Access-Token": first["envdAccessToken"]})
        assert elsewhere.status_code == 401


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
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 2)
        refused = await client.get("/", headers=doors.route(sandbox, 8000))
        assert refused.status_code == 429 and refused.json()["connectionLimit"] == 2
        go.set()
        assert [response.status_code for response in await asyncio.gather(*waiting)] == [200, 200]


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
    from tests.api.servers import serving

    from sandlot.server.http import build_server
    from sandlot.server.tls import certificate_for

    certificate = certificate_for("inside.test", tmp_path / "tls")
    sandbox = (await doors.create(network={"httpsPorts": [8443]}))["sandboxID"]

    async def scheme(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["scheme"].encode()})

    server = build_server(scheme, host="127.0.0.1", port=0, certificate=(certificate.chain, certificate.key))
    async with serving(server), doors.client(key=None) as client:
        doors.ports[8443] = doors.ports[8444] = server.port
        assert (await client.get("/s", headers=doors.route(sandbox, 8443))).text == "https"
        assert (await client.get("/s", headers=doors.route(sandbox, 8444))).text == "http"


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
    async def silent(address: str, token: str | None, port: int) -> int | None:
        raise GuestUnresponsive("envd does not answer")

    monkeypatch.setattr(doors.node, "relay", silent)
    async with doors.client(key=None) as client:
        response = await client.get("/", headers=doors.route(sandbox, 8000))
        assert response.status_code == 502 and "port is not open" in response.json()["message"]


async def test_a_store_that_is_away_is_a_503(doors: Doors, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(sandbox_id: str) -> None:
        raise Unavailable("the database cannot be reached")

    monkeypatch.setattr(doors.gateway._routes, "_find", away)
    async with doors.client(key=None) as client:
        response = await client.get("/", headers=doors.route("iother0000", 8000))
        assert response.status_code == 503 and "database" in response.json()["message"]
