"""One scenario per method of the Python SDKs, of any release: runs with nothing but the SDK, and prints how each went as JSON."""

import base64
import json
import os
import socket
import ssl
import struct
import sys
import time
import traceback
import urllib.request

# In the sandbox: answers HTTP with a word, and echoes the first message of a WebSocket.
SERVICE = r"""
import base64, hashlib, socket, struct
server = socket.create_server(("0.0.0.0", 8000))
while True:
    peer, _ = server.accept()
    head = b""
    while b"\r\n\r\n" not in head:
        more = peer.recv(65536)
        if not more:
            break
        head += more
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
    key = next((value for name, value in lines.items() if name.lower() == "sec-websocket-key"), None)
    if key is None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    else:
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        peer.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        start = peer.recv(2)
        length, mask = start[1] & 127, peer.recv(4)
        text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(peer.recv(length)))
        peer.sendall(struct.pack("BB", 0x81, len(text)) + text)
    peer.close()
"""


class Missing(Exception):
    """This release does not have the method."""


def create(sandbox_class, template=None):
    if hasattr(sandbox_class, "create"):
        return sandbox_class.create(template, timeout=300) if template else sandbox_class.create(timeout=300)
    return sandbox_class(template, timeout=300) if template else sandbox_class(timeout=300)


class Scenarios:
    def __init__(self, sandbox_class):
        self.Sandbox = sandbox_class
        self.sandbox = None

    def create(self):
        self.sandbox = create(self.Sandbox)
        assert self.sandbox.is_running()

    def run(self):
        assert self.sandbox.commands.run("echo $((6*7))").stdout == "42\n"
        try:
            self.sandbox.commands.run("exit 3")
        except Exception as error:
            assert getattr(error, "exit_code", None) == 3, error
        else:
            raise AssertionError("a failed command was no error")

    def files(self):
        files = self.sandbox.files
        files.write("/home/user/file", "content")
        assert files.read("/home/user/file") == "content"
        assert "file" in [entry.name for entry in files.list("/home/user")] and files.exists("/home/user/file")
        files.remove("/home/user/file")
        assert not files.exists("/home/user/file")

    def list(self):
        found = self.Sandbox.list()
        ids = [each.sandbox_id for each in (found if isinstance(found, list) else found.next_items())]
        assert any(self.id() == each.split("-")[0] for each in ids), ids

    def timeout(self):
        self.sandbox.set_timeout(200)

    def connect(self):
        self.sandbox = self.Sandbox.connect(self.sandbox.sandbox_id)
        assert self.sandbox.commands.run("echo again").stdout == "again\n"

    def get_host(self):
        self.sandbox.files.write("/home/user/service.py", SERVICE)
        self.sandbox.commands.run("python3 /home/user/service.py", background=True)
        address = "https://" + self.sandbox.get_host(8000)
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    assert answer.read() == b"hello"
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def websocket(self):
        host, _, port = self.sandbox.get_host(8000).partition(":")
        plain = socket.create_connection((host, int(port or 443)), 10)
        with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as wire:
            key = base64.b64encode(os.urandom(16)).decode()
            wire.sendall(
                f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            said = b""
            while b"\r\n\r\n" not in said:
                said += wire.recv(4096)
            assert said.startswith(b"HTTP/1.1 101"), said[:200]
            wire.sendall(struct.pack("BB", 0x81, 0x80 | 2) + b"\0\0\0\0" + b"hi")
            frame = said.partition(b"\r\n\r\n")[2]
            while len(frame) < 4:
                frame += wire.recv(64)
            assert frame[2:4] == b"hi", frame

    def pause(self):
        pause = getattr(self.sandbox, "pause", None) or getattr(self.sandbox, "beta_pause", None)
        if pause is None:
            raise Missing
        self.sandbox.commands.run("echo kept > /tmp/state")
        pause()

    def resume(self):
        if not hasattr(self.sandbox, "pause") and not hasattr(self.sandbox, "beta_pause"):
            raise Missing
        resume = getattr(self.Sandbox, "resume", None) or self.Sandbox.connect
        self.sandbox = resume(self.sandbox.sandbox_id)
        assert self.sandbox.commands.run("cat /tmp/state").stdout == "kept\n"

    def kill(self):
        assert self.sandbox.kill() is not False  # the first releases say nothing
        assert not self.sandbox.is_running()

    def template_build(self):
        try:
            from e2b import Template
        except ImportError:
            raise Missing from None
        recipe = Template().from_base_image().run_cmd("echo built > /home/user/how")
        name = f"compat-{os.urandom(4).hex()}"
        build = Template.build
        try:
            build(recipe, name, cpu_count=1, memory_mb=512)
        except TypeError:  # the name was called an alias once
            build(recipe, alias=name, cpu_count=1, memory_mb=512)
        sandbox = create(self.Sandbox, name)
        try:
            assert sandbox.commands.run("cat /home/user/how").stdout == "built\n"
        finally:
            sandbox.kill()

    def id(self):
        return self.sandbox.sandbox_id.split("-")[0]


class Interpreter(Scenarios):
    def code(self):
        done = self.sandbox.run_code("x = 20\nx * 2 + 2")
        assert done.text == "42", done
        assert self.sandbox.run_code("print(x)").logs.stdout == ["20\n"]
        assert self.sandbox.run_code("1/0").error.name == "ZeroDivisionError"

    def chart(self):
        done = self.sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
        assert done.results and done.results[0].png, done


METHODS = {
    "python": [
        "create",
        "run",
        "files",
        "list",
        "timeout",
        "connect",
        "get_host",
        "websocket",
        "pause",
        "resume",
        "kill",
        "template_build",
    ],
    "python-interpreter": ["create", "run", "files", "code", "chart", "connect", "pause", "resume", "kill"],
}


def main(kind):
    if kind == "python":
        from e2b import Sandbox

        scenarios = Scenarios(Sandbox)
    else:
        from e2b_code_interpreter import Sandbox

        scenarios = Interpreter(Sandbox)
    for name in METHODS[kind]:
        try:
            getattr(scenarios, name)()
            outcome = {"ok": True}
        except Missing:
            outcome = {"ok": None}
        except Exception as error:
            outcome = {"ok": False, "why": f"{type(error).__name__}: {error}"[:300]}
            traceback.print_exc()
        print(json.dumps({"method": name, **outcome}), flush=True)
        if name == "create" and not outcome["ok"]:
            return


if __name__ == "__main__":
    main(sys.argv[1])
