"""What envd does with all that is not a well-behaved SDK: raw bytes, the other codec, hostile input, slow readers."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import Sandbox
from e2b.envd.filesystem import filesystem_pb
from e2b.envd.filesystem.filesystem_connect import FilesystemClientSync
from e2b.envd.process import process_pb
from e2b.envd.process.process_connect import ProcessClientSync
from protobuf import Oneof
from tests.guest.running import TOKEN, Envd, eventually

AUTH = {"X-Access-Token": TOKEN}
STREAM = "application/connect+json"


def frame(message: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(message)) + message


def frames(body: bytes) -> list[tuple[int, dict[str, object]]]:
    found = []
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        found.append((flags, json.loads(body[5 : 5 + length])))
        body = body[5 + length :]
    return found


def call(envd: Envd, method: str, body: bytes, content_type: str, **headers: str) -> tuple[int, bytes]:
    status, _headers, answer = envd.request("POST", f"/{method}", body, {"Content-Type": content_type, **headers})
    return status, answer


def error_of(body: bytes) -> object:
    flags, last = frames(body)[-1]
    assert flags == 2
    error = last["error"]
    assert isinstance(error, dict)
    return error["code"]


# --- the protobuf codec, with the official client's own messages and gzip requests


def test_processes_speak_protobuf_too(envd: Envd) -> None:
    client = ProcessClientSync(envd.url)
    request = process_pb.StartRequest(
        process=process_pb.ProcessConfig(cmd="/bin/sh", args=["-c", "cat; echo $X >&2; exit 300"], envs={"X": "ü"}),
        tag="by-tag",
    )
    events = client.start(request, headers=AUTH)
    started = next(events).event.event
    assert started.field == "start"
    selector = process_pb.ProcessSelector(selector=Oneof("tag", "by-tag"))
    listed = client.list(process_pb.ListRequest(), headers=AUTH).processes
    assert [(each.pid, each.tag) for each in listed if each.tag] == [(started.value.pid, "by-tag")]

    def messages() -> Iterator[process_pb.StreamInputRequest]:
        yield process_pb.StreamInputRequest(
            event=Oneof("start", process_pb.StreamInputRequest.StartEvent(process=selector))
        )
        for data in (b"one ", b"\xff two"):
            content = process_pb.ProcessInput(input=Oneof("stdin", data))
            yield process_pb.StreamInputRequest(
                event=Oneof("data", process_pb.StreamInputRequest.DataEvent(input=content))
            )
        yield process_pb.StreamInputRequest(event=Oneof("keepalive", process_pb.StreamInputRequest.KeepAlive()))

    client.stream_input(messages(), headers=AUTH)
    client.close_stdin(process_pb.CloseStdinRequest(process=selector), headers=AUTH)
    rest = [message.event.event for message in events]
    output = {"stdout": b"", "stderr": b""}
    for event in rest[:-1]:
        output[event.value.output.field] += event.value.output.value
    assert output == {"stdout": b"one \xff two", "stderr": "ü\n".encode()}
    end = rest[-1].value
    assert (rest[-1].field, end.exit_code, end.exited, end.status, end.error) == (
        "end",
        44,
        True,
        "exit status 44",
        "exit status 44",
    )
    with pytest.raises(ConnectError) as gone:
        client.send_signal(
            process_pb.SendSignalRequest(process=selector, signal=process_pb.Signal.SIGKILL), headers=AUTH
        )
    assert gone.value.code == Code.NOT_FOUND


def test_files_speak_protobuf_too(envd: Envd) -> None:
    client = FilesystemClientSync(envd.url)
    entry = client.make_dir(filesystem_pb.MakeDirRequest(path="proto/dir"), headers=AUTH).entry
    assert (entry.name, entry.type, entry.permissions) == ("dir", filesystem_pb.FileType.DIRECTORY, "drwxr-xr-x")
    assert abs(entry.modified_time.seconds - time.time()) < 60
    listed = client.list_dir(filesystem_pb.ListDirRequest(path="proto"), headers=AUTH).entries
    assert [each.path for each in listed] == [f"{envd.home}/proto/dir"]


# --- things no client should send


@pytest.mark.parametrize(
    ("method", "body", "content_type", "status"),
    [
        ("process.Process/List", b"{", "application/json", 400),
        ("process.Process/List", b"\xff", "application/json", 400),
        ("process.Process/List", b"[]", "application/json", 400),
        ("process.Process/List", b"[" * 100_000, "application/json", 400),
        ("process.Process/List", b"{}", "text/plain", 415),
        ("process.Process/List", b"{}", STREAM, 415),
        ("process.Process/Start", b"{}", "application/json", 415),
        ("process.Process/Nothing", b"{}", "application/json", 404),
        ("process.Process/", b"{}", "application/json", 404),
        ("other.Service/List", b"{}", "application/json", 404),
        ("filesystem.Filesystem/Stat", b'{"path":7}', "application/json", 400),
        ("filesystem.Filesystem/Stat", b'{"path":"a\\u0000b"}', "application/json", 400),
        ("filesystem.Filesystem/Stat", b'{"path":"\\ud800"}', "application/json", 400),
        ("filesystem.Filesystem/Stat", b'{"path":"~ghost/x"}', "application/json", 400),
        ("filesystem.Filesystem/ListDir", b'{"depth":-1}', "application/json", 400),
        ("filesystem.Filesystem/ListDir", b'{"depth":99999999999}', "application/json", 400),
        ("filesystem.Filesystem/Remove", b'{"path":"/"}', "application/json", 400),
        ("process.Process/SendSignal", b'{"process":{"pid":1},"signal":"SIGNAL_NONE"}', "application/json", 400),
        ("process.Process/SendSignal", b'{"process":{"pid":1},"signal":9}', "application/json", 404),
        ("process.Process/SendInput", b'{"process":{}}', "application/json", 400),
        ("process.Process/SendInput", b'{"process":{"pid":1},"input":{"stdin":"%%%"}}', "application/json", 400),
        ("process.Process/SendInput", b"\x0a\xff", "application/proto", 400),
        ("process.Process/SendInput", b"\x08\x01", "application/proto", 400),
        ("process.Process/SendInput", b"\xff" * 12, "application/proto", 400),
        ("filesystem.Filesystem/GetWatcherEvents", b'{"watcherId":"wnone"}', "application/json", 404),
    ],
)  # fmt: skip
def test_bad_calls_get_a_clear_refusal(envd: Envd, method: str, body: bytes, content_type: str, status: int) -> None:
    code, answer = call(envd, method, body, content_type)
    assert code == status
    if status not in (404, 415):
        assert json.loads(answer)["code"] in ("invalid_argument", "not_found", "unimplemented")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_argument"),
        (b"\0\0", "invalid_argument"),
        (frame(b"{}")[:-1], "invalid_argument"),
        (b"\0\xff\xff\xff\xff", "resource_exhausted"),
        (frame(b"{}", 0x80), "invalid_argument"),
        (frame(b"{}", 1), "invalid_argument"),
        (frame(b"{}") + frame(b"{}"), "invalid_argument"),
        (frame(b"nonsense"), "invalid_argument"),
        (frame(b'{"process":{"cmd":""}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/no/such/program"}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"no-such-program"}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/no/such/program"},"pty":{}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/"}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/bin/true","args":["a\\u0000b"]}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/bin/true","envs":{"A=B":"c"}}}'), "invalid_argument"),
        (frame(b'{"process":{"cmd":"/bin/true","cwd":"/etc/hostname/x"}}'), "invalid_argument"),
    ],
)  # fmt: skip
def test_bad_streams_end_with_an_error_frame(envd: Envd, body: bytes, code: str) -> None:
    status, answer = call(envd, "process.Process/Start", body, STREAM, **{"Connect-Content-Encoding": "gzip"})
    assert (status, error_of(answer)) == (200, code)


def test_bad_headers_of_a_call_are_refused(envd: Envd) -> None:
    start = frame(b'{"process":{"cmd":"/bin/true"}}')
    for header in ({"Connect-Timeout-Ms": "soon"}, {"Connect-Timeout-Ms": "99999999999"}):
        assert error_of(call(envd, "process.Process/Start", start, STREAM, **header)[1]) == "invalid_argument"
    for value in ("Basic !", "Basic /////w=="):
        answer = call(envd, "process.Process/Start", start, STREAM, Authorization=value)[1]
        assert error_of(answer) == "unauthenticated"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/3\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX : y\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 70_000, 431),
        (b"GET /%ff%zz HTTP/1.1\r\n\r\n", 400),
        (b"POST /init HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /init HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /init HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /init HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /init HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /init HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", 400),
        (b"POST /init HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"PUT /health HTTP/1.1\r\nX-Access-Token: " + TOKEN.encode() + b"\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\nX-Access-Token: " + TOKEN.encode() + b"\r\n\r\n", 404),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 401),
    ],
)  # fmt: skip
def test_broken_http_gets_one_clear_answer(envd: Envd, request_bytes: bytes, status: int) -> None:
    answer = envd.raw(request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert answer.count(b"Access-Control-Allow-Origin") == 1


def test_a_refusal_reaches_a_client_that_is_still_sending(envd: Envd) -> None:
    guess = {"X-Access-Token": "guess", "Content-Type": "application/octet-stream"}
    assert envd.request("POST", "/files?path=big", b"x" * 30_000_000, guess)[0] == 401
    assert not (envd.home / "big").exists()


def test_a_torn_request_leaves_nothing_behind(envd: Envd) -> None:
    before = len(list(Path(f"/proc/{envd.pid}/fd").iterdir()))
    envd.raw(b"POST /files?path=torn HTTP/1.1\r\nX-Access-Token: x\r\nContent-Length: 100\r\n\r\nabc", half_close=True)
    envd.raw(b"POST /init HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc", half_close=True)
    envd.raw(b"GET /heal", half_close=True)
    eventually(lambda: len(list(Path(f"/proc/{envd.pid}/fd").iterdir())) <= before)


def test_pipelined_requests_are_answered_in_order(envd: Envd) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    assert envd.raw(one * 3).count(b"HTTP/1.1 204") == 3
    closing = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert envd.raw(closing + one).count(b"HTTP/1.1 204") == 1


def test_a_client_that_waits_for_continue_is_told_to(envd: Envd) -> None:
    head = f"POST /files?path=waited HTTP/1.1\r\nX-Access-Token: {TOKEN}\r\nContent-Type: application/octet-stream\r\n"
    with socket.create_connection(("127.0.0.1", envd.port), timeout=60) as client:
        client.sendall(f"{head}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n".encode())
        assert client.recv(1024).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"body")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert (envd.home / "waited").read_text() == "body"


def test_a_half_closed_client_still_gets_its_answer(envd: Envd) -> None:
    assert envd.raw(b"GET /health HTTP/1.1\r\n\r\n", half_close=True).startswith(b"HTTP/1.1 204")


def test_browsers_of_any_origin_may_call(envd: Envd) -> None:
    asked = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-y",
    }
    status, headers, _body = envd.request("OPTIONS", "/process.Process/List", headers={**asked, "X-Access-Token": ""})
    assert (status, headers["access-control-allow-origin"], headers["access-control-allow-headers"]) == (
        204,
        "*",
        "x-y",
    )
    assert envd.request("GET", "/health")[1]["access-control-allow-origin"] == "*"


# --- behaviour over time


def _open_stream(envd: Envd, command: str, **headers: str) -> socket.socket:
    body = frame(json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": False}).encode())
    lines = {"X-Access-Token": TOKEN, "Content-Type": STREAM, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    client = socket.create_connection(("127.0.0.1", envd.port), timeout=60)
    client.sendall(f"POST /process.Process/Start HTTP/1.1\r\n{head}\r\n".encode() + body)
    return client


def _read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        piece = client.recv(65536)
        assert piece, data[-200:]
        data += piece
    return data


def test_a_silent_stream_says_that_it_lives(envd: Envd) -> None:
    with _open_stream(envd, "sleep 30", **{"Keepalive-Ping-Interval": "1"}) as client:
        assert b'"keepalive":{}' in _read_until(client, b"keepalive")


def test_the_deadline_ends_the_stream_as_exceeded(envd: Envd) -> None:
    with _open_stream(envd, "sleep 30", **{"Connect-Timeout-Ms": "200"}) as client:
        assert b"deadline_exceeded" in _read_until(client, b"0\r\n\r\n")


def test_a_slow_reader_holds_the_process_back_instead_of_filling_memory(envd: Envd) -> None:
    before = _resident_kb(envd.pid)
    with _open_stream(envd, "echo $$ > writer; exec yes") as client:
        eventually((envd.home / "writer").exists)
        pid = int(eventually((envd.home / "writer").read_text))  # type: ignore[call-overload]
        written = lambda: int(Path(f"/proc/{pid}/io").read_text().split("wchar: ")[1].split()[0])  # noqa: E731

        def stalled() -> bool:
            first = written()
            time.sleep(0.2)
            return first == written()

        eventually(stalled)
        assert _resident_kb(envd.pid) - before < 20_000
        client.recv(65536)
    # Nobody reads any more: the process runs on, its output goes nowhere.
    amount = written()
    eventually(lambda: written() > amount + 50_000_000)
    assert _resident_kb(envd.pid) - before < 20_000
    _kill(envd, pid)


def test_a_compressed_download_is_not_held_in_memory(envd: Envd) -> None:
    with (envd.home / "large").open("wb") as file:
        for _ in range(60):
            file.write(os.urandom(1_000_000))
    before = _resident_kb(envd.pid)
    head = f"GET /files?path={envd.home}/large HTTP/1.1\r\nX-Access-Token: {TOKEN}\r\nAccept-Encoding: gzip\r\n\r\n"
    with socket.create_connection(("127.0.0.1", envd.port), timeout=60) as client:
        client.sendall(head.encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        assert envd.request("GET", "/health")[0] == 204
        assert _resident_kb(envd.pid) - before < 20_000
    (envd.home / "large").unlink()


def test_a_slow_reader_does_not_hold_another_one_back(envd: Envd, sandbox: Sandbox) -> None:
    slow = _open_stream(envd, "read -t 1 line; echo start; seq 1 3000000; echo finished")
    pid = json.loads(_read_until(slow, b"start").split(b'"start":')[1].split(b"}")[0] + b"}")["pid"]
    seen: list[str] = []
    follower = threading.Thread(target=lambda: sandbox.commands.connect(pid).wait(on_stdout=seen.append), daemon=True)
    follower.start()
    follower.join(timeout=60)
    slow.close()
    assert not follower.is_alive()
    assert "".join(seen).endswith("3000000\nfinished\n")


def _kill(envd: Envd, pid: int) -> None:
    body = json.dumps({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}).encode()
    assert call(envd, "process.Process/SendSignal", body, "application/json")[0] == 200


def _resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


# --- routes for the host


def test_init_needs_the_current_token_and_replaces_it(envd: Envd) -> None:
    guess = {"X-Access-Token": "guess"}
    assert envd.request("POST", "/init", b'{"accessToken":"mine"}', guess)[0] == 401
    assert envd.request("POST", "/init", b'{"accessToken":7}')[0] == 400
    assert envd.request("POST", "/init", b'{"envVars":{"A=":"x"}}')[0] == 400
    status, headers, _body = envd.request("POST", "/init", b'{"accessToken":"next","envVars":{"N":"1"}}')
    assert (status, headers["x-envd-version"]) == (204, "0.7.0")
    assert envd.request("GET", "/envs")[0] == 401
    renewed = {"X-Access-Token": "next"}
    environment = json.loads(envd.request("GET", "/envs", headers=renewed)[2])
    assert environment == {"N": "1", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "itest", "E2B_TEMPLATE_ID": "base"}
    assert envd.request("POST", "/init", json.dumps({"accessToken": TOKEN}).encode(), renewed)[0] == 204
    assert (envd.run_dir / ".E2B_SANDBOX_ID").read_text() == "itest"


def test_a_service_on_the_loopback_is_reached_through_a_relay(envd: Envd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        service.settimeout(10)
        answers = [envd.request("POST", "/relay", json.dumps({"port": port}).encode()) for _ in range(2)]
        assert [answer[0] for answer in answers] == [200, 200]
        relays = {json.loads(answer[2])["port"] for answer in answers}
        assert len(relays) == 1
        for _ in answers:
            service.accept()[0].close()  # the questions whether somebody listens
        with socket.create_connection(("127.0.0.1", relays.pop()), timeout=60) as client:
            inside, _peer = service.accept()
            with inside:
                client.sendall(b"ping")
                client.shutdown(socket.SHUT_WR)
                assert (inside.recv(10), inside.recv(10)) == (b"ping", b"")
                inside.sendall(b"pong")
            assert client.recv(10) == b"pong"
            assert client.recv(10) == b""
    assert envd.request("POST", "/relay", json.dumps({"port": port}).encode())[0] == 404
    for bad in (b"{}", b'{"port":0}', b'{"port":"80"}', b'{"port":true}', b"[]", b"x"):
        assert envd.request("POST", "/relay", bad)[0] == 400


def test_the_log_tells_what_ran_and_is_bounded(envd: Envd, sandbox: Sandbox) -> None:
    handle = sandbox.commands.run(f"true {'x' * 10_000}", background=True)
    handle.wait()
    entries = json.loads(envd.request("GET", "/logs")[2])["entries"]
    mine = [entry for entry in entries if entry["fields"].get("pid") == str(handle.pid)]
    assert [entry["message"] for entry in mine] == ["process started", "process ended"]
    assert mine[0]["fields"]["user"] == "user"
    assert len(mine[0]["fields"]["cmd"]) < 3000
    assert mine[1]["fields"]["exit_code"] == "0"
    newest = entries[-1]["seq"]
    assert json.loads(envd.request("GET", f"/logs?after={newest}")[2]) == {"entries": []}
    assert envd.request("GET", "/logs?after=x")[0] == 400
    assert envd.request("GET", "/logs", headers={"X-Access-Token": ""})[0] == 401


def test_metrics_are_numbers_that_make_sense(envd: Envd) -> None:
    metrics = json.loads(envd.request("GET", "/metrics")[2])
    assert 0 < metrics["mem_used"] < metrics["mem_total"]
    assert 0 < metrics["disk_used"] < metrics["disk_total"]
    assert metrics["cpu_count"] >= 1
    assert 0 <= metrics["cpu_used_pct"] <= 100


@pytest.mark.parametrize("method", ["Stat", "ListDir", "MakeDir", "Move"])
def test_clients_that_refuse_new_fields_get_the_old_ones_alone(envd: Envd, method: str) -> None:
    parent = envd.home / f"old-{method}"
    (parent / "child").mkdir(parents=True)
    if os.getuid() == 0:
        os.chown(parent, 1000, 1000)
    path = parent / "new" if method == "MakeDir" else parent
    message = (
        {"source": f"{parent}/child", "destination": f"{parent}/moved"} if method == "Move" else {"path": str(path)}
    )
    answer = call(
        envd,
        f"filesystem.Filesystem/{method}",
        json.dumps(message).encode(),
        "application/json",
        **{"User-Agent": "connect-python"},
    )
    assert answer[0] == 200, answer
    body = json.loads(answer[1])
    for entry in body["entries"] if method == "ListDir" else [body["entry"]]:
        assert sorted(entry) == ["name", "path", "type"]
