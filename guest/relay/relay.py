"""The sandbox's end of the tunnel: carries connections to 127.0.0.1:6070 to the platform, over the WebSocket that the platform opens.

It is copied into sandboxes as this one file and started there by whatever Python is found, so it needs Python 3.8 and the
standard library, less where hashlib is missing. It understands nothing of what it carries. `python relay.py` starts it in the
background and returns when it listens; it replaces one that runs already.

Frames, one per binary WebSocket message: kind (1 byte), stream (4 bytes), payload. `OPEN`, `DATA`, `END` (no more from this
side; from the platform also: the stream is closed), `RESET`, `CREDIT` (so many more bytes may come), `PING`, `PONG`, `BYE`.
"""

from __future__ import annotations

import binascii
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque

VERSION = "sandlot-tunnel.1"
LOCAL_PORT, TUNNEL_PORT = 6070, 6071
HOME = "/tmp/.sandlot-relay"
OPEN, DATA, END, RESET, CREDIT, PING, PONG, BYE = range(1, 9)
WINDOW = 512 * 1024  # bytes of one stream that may be on their way in one direction
FRAME = 256 * 1024
MOST_STREAMS = 64
MOST_HANDSHAKES = 8
HEAD_LIMIT = 16 * 1024
HANDSHAKE_S = 10.0
AWAIT_LINK_S = 60.0  # how long a connection waits for the platform
TAKEOVER_S = 10.0
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NO_TUNNEL = b"the platform is not connected to this sandbox just now; try again"


class Broken(Exception):
    """The other side does not keep to the protocol, or is gone."""


class Link:
    """One WebSocket connection with the platform, and the streams on it."""

    def __init__(self, sock, early=b""):
        self._sock, self._early = sock, early
        self._file = sock.makefile("rb", buffering=FRAME)
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._streams = {}
        self._last = 0
        self.is_open = True

    def add(self, stream):
        """Give a stream its number and tell the platform. Raises `Broken`."""
        with self._lock:
            if not self.is_open:
                raise Broken("closed")
            self._last += 1
            stream.number = self._last
            self._streams[stream.number] = stream
            self.send(OPEN, stream.number)

    def remove(self, stream):
        with self._lock:
            self._streams.pop(stream.number, None)

    def send(self, kind, number, payload=b""):
        """Raises `Broken`."""
        size = _HEAD.size + len(payload)
        if size < 126:
            head = struct.pack(">BB", 0x82, size)
        elif size < 65536:
            head = struct.pack(">BBH", 0x82, 126, size)
        else:
            head = struct.pack(">BBQ", 0x82, 127, size)
        self._write(head + _HEAD.pack(kind, number) + payload)

    def _write(self, data):
        try:
            with self._sending:
                self._sock.sendall(data)
        except OSError as error:
            raise Broken(str(error)) from None

    def run(self):
        """Hand out what comes, until the connection ends."""
        try:
            while True:
                self._take(self._message())
        except (Broken, OSError, ValueError):
            pass
        finally:
            self.close()

    def close(self):
        with self._lock:
            self.is_open = False
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            stream.cut()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()

    def _take(self, message):
        if len(message) < _HEAD.size:
            raise Broken("short frame")
        kind, number = _HEAD.unpack_from(message)
        if kind == PING:
            self.send(PONG, 0, message[_HEAD.size :])
            return
        if kind == BYE:
            _leave()
        stream = self._streams.get(number)
        if stream is None:
            return  # it ended while this was on its way
        if kind == DATA:
            stream.deliver(message[_HEAD.size :])
        elif kind == CREDIT:
            stream.grant(_COUNT.unpack_from(message, _HEAD.size)[0])
        elif kind == END:
            stream.deliver(None)
        elif kind == RESET:
            stream.cut()

    def _message(self):
        """The next whole binary message; pings are answered on the way."""
        parts = []
        while True:
            first, second = self._read(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self._read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self._read(8))[0]
            if not second & 128 or size + sum(map(len, parts)) > FRAME + _HEAD.size:
                raise Broken("not masked, or too large")
            mask = self._read(4)
            payload = unmasked(self._read(size), mask)
            opcode = first & 15
            if opcode == 8:
                self._write(struct.pack(">BB", 0x88, min(len(payload), 125)) + payload[:125])
                raise Broken("closed")
            if opcode == 9:
                self._write(struct.pack(">BB", 0x8A, min(len(payload), 125)) + payload[:125])
            elif opcode in (0, 2):
                parts.append(payload)
                if first & 128:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
            elif opcode != 10:
                raise Broken("not binary")

    def _read(self, count):
        early, self._early = self._early[:count], self._early[count:]
        data = early + self._file.read(count - len(early)) if count > len(early) else early
        if len(data) < count:
            raise Broken("ended")
        return data


class Stream:
    """One connection from inside the sandbox: this thread carries what it sends, a second one what it gets."""

    def __init__(self, sock, link):
        self._sock, self._link = sock, link
        self._changed = threading.Condition()
        self._credit, self._incoming = WINDOW, deque()
        self._is_cut = False
        self.number = 0

    def run(self):
        self._link.add(self)
        down = threading.Thread(target=self._down, daemon=True)
        down.start()
        try:
            self._up()
        except (Broken, OSError):
            self.cut()
        down.join()
        self._link.remove(self)

    def deliver(self, data):
        """Bytes from the platform; None when it has closed the stream."""
        with self._changed:
            self._incoming.append(data)
            self._changed.notify_all()

    def grant(self, count):
        with self._changed:
            self._credit += count
            self._changed.notify_all()

    def cut(self):
        """End it as a crash would, at once."""
        with self._changed:
            self._is_cut = True
            self._changed.notify_all()
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _up(self):
        while True:
            with self._changed:
                while not self._credit and not self._is_cut:
                    self._changed.wait()
                most = min(self._credit, FRAME)
            data = self._sock.recv(most)
            if self._is_cut:
                return
            if not data:
                self._link.send(END, self.number)
                return
            with self._changed:
                self._credit -= len(data)
            self._link.send(DATA, self.number, data)

    def _down(self):
        taken = 0
        try:
            while True:
                with self._changed:
                    while not self._incoming and not self._is_cut:
                        self._changed.wait()
                    if self._is_cut:
                        break
                    data = self._incoming.popleft()
                if data is None:
                    self._sock.shutdown(socket.SHUT_RDWR)
                    return
                self._sock.sendall(data)
                taken += len(data)
                if taken >= WINDOW // 4:
                    self._link.send(CREDIT, self.number, _COUNT.pack(taken))
                    taken = 0
        except (Broken, OSError):
            self.cut()
        try:
            self._link.send(RESET, self.number)
        except Broken:
            pass


class Relay:
    """Both doors: connections from inside wait for a link, links come from the platform. The newest link counts."""

    def __init__(self):
        self._changed = threading.Condition()
        self._link = None
        self._places = threading.Semaphore(MOST_STREAMS)
        self._handshakes = threading.Semaphore(MOST_HANDSHAKES)

    def serve(self, local, tunnel):
        threading.Thread(target=self._accept, args=(tunnel, self._handshakes, self._welcome), daemon=True).start()
        self._accept(local, self._places, self._carry)

    def _accept(self, listener, places, take):
        while True:
            places.acquire()
            try:
                sock = listener.accept()[0]
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                places.release()
                time.sleep(0.05)
                continue
            threading.Thread(target=self._within, args=(sock, places, take), daemon=True).start()

    def _within(self, sock, places, take):
        try:
            take(sock)
        except (Broken, OSError):
            pass
        finally:
            sock.close()
            places.release()

    def _carry(self, sock):
        until = time.monotonic() + AWAIT_LINK_S
        while True:
            link = self._await_link(until)
            if link is None:
                _say_unavailable(sock)
                return
            try:
                Stream(sock, link).run()
                return
            except Broken:  # it was lost before the stream began
                self._forget(link)

    def _await_link(self, until):
        with self._changed:
            while self._link is None:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._link

    def _forget(self, link):
        with self._changed:
            if self._link is link:
                self._link = None

    def _welcome(self, sock):
        sock.settimeout(HANDSHAKE_S)
        head, _, early = _read_head(sock).partition(b"\r\n\r\n")
        headers = {}
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        key = headers.get(b"sec-websocket-key")
        if key is None or VERSION.encode() not in headers.get(b"sec-websocket-protocol", b"").replace(b" ", b"").split(
            b","
        ):
            _refuse(sock, b"400 Bad Request", b"the tunnel of a sandbox, version " + VERSION.encode())
            return
        if not admitted(headers.get(b"x-sandlot-tunnel", b"")):
            _refuse(sock, b"401 Unauthorized", b"not the token of this moment")
            return
        accept = binascii.b2a_base64(sha1(key + _GUID)).strip()
        sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: " + VERSION.encode() + b"\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        sock.settimeout(None)
        self._handshakes.release()  # it is a link now, and takes no place any more
        link = Link(sock, early)
        with self._changed:
            former, self._link = self._link, link
            self._changed.notify_all()
        if former is not None:
            former.close()
        try:
            link.run()
        finally:
            self._forget(link)
            self._handshakes.acquire()


def unmasked(data, mask):
    if mask == b"\0\0\0\0":
        return data
    out = bytearray(len(data))
    for place in range(4):
        table = bytes(byte ^ mask[place] for byte in range(256))
        out[place::4] = data[place::4].translate(table)
    return bytes(out)


def admitted(token):
    """Whether this is the token whose hash the platform has just left here. Each is good for one connection."""
    path = HOME + "/token"
    try:
        with open(path, "rb") as file:
            known = file.read(64)
        if not token or len(known) != 64 or known != sha256(token).encode():
            return False
        os.unlink(path)
    except OSError:
        return False
    return True


def sha256(data):
    try:
        from hashlib import sha256 as made
    except ImportError:  # in envd's own interpreter
        try:
            from _sha2 import sha256 as made
        except ImportError:
            from _sha256 import sha256 as made
    return made(data).hexdigest()


def sha1(data):
    """By hand where hashlib is missing: the opening of a WebSocket needs it, and nothing else does."""
    try:
        from hashlib import sha1 as made

        return made(data).digest()
    except ImportError:
        return plain_sha1(data)


def plain_sha1(data):
    def turn(value, by):
        return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF

    h = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0]
    padded = data + b"\x80" + b"\0" * ((55 - len(data)) % 64) + struct.pack(">Q", len(data) * 8)
    for start in range(0, len(padded), 64):
        w = list(struct.unpack(">16I", padded[start : start + 64]))
        for i in range(16, 80):
            w.append(turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1))
        a, b, c, d, e = h
        for i in range(80):
            if i < 20:
                f, k = (b & c) | (~b & d), 0x5A827999
            elif i < 40:
                f, k = b ^ c ^ d, 0x6ED9EBA1
            elif i < 60:
                f, k = (b & c) | (b & d) | (c & d), 0x8F1BBCDC
            else:
                f, k = b ^ c ^ d, 0xCA62C1D6
            a, b, c, d, e = (turn(a, 5) + f + e + k + w[i]) & 0xFFFFFFFF, a, turn(b, 30), c, d
        h = [(old + new) & 0xFFFFFFFF for old, new in zip(h, (a, b, c, d, e))]  # noqa: B905  # Python 3.8
    return struct.pack(">5I", *h)


def _read_head(sock):
    data = b""
    until = time.monotonic() + HANDSHAKE_S
    while b"\r\n\r\n" not in data:
        piece = sock.recv(4096)
        data += piece
        if not piece or len(data) > HEAD_LIMIT or time.monotonic() > until:
            raise Broken("no request")
    return data


def _refuse(sock, status, words):
    sock.sendall(
        b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (status, len(words), words)
    )


def _say_unavailable(sock):
    _refuse(sock, b"503 Service Unavailable", _NO_TUNNEL)
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(1.0)
    while sock.recv(65536):  # what is unread when a connection is closed resets it, and loses the answer
        pass


def _listen(address, port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    until = time.monotonic() + TAKEOVER_S
    while True:
        try:
            listener.bind((address, port))
            listener.listen(128)
            return listener
        except OSError as error:
            if time.monotonic() > until:
                sys.exit("port %d of the sandbox cannot be had for the tunnel: %s" % (port, error))
            time.sleep(0.05)


def _end_former():
    """The relay that runs already, if one does, makes room."""
    try:
        with open(HOME + "/pid") as file:
            pid = int(file.read(20))
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            if pid > 1 and b"relay.py" in file.read(4096):
                os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        pass


def _leave():
    try:
        os.unlink(HOME + "/pid")
    except OSError:
        pass
    os._exit(0)


def main():
    _end_former()
    local, tunnel = _listen("127.0.0.1", LOCAL_PORT), _listen("0.0.0.0", TUNNEL_PORT)
    sys.stdout.flush()
    if os.fork():
        os._exit(0)  # it listens: whoever started it may go on
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    with open(HOME + "/pid", "w") as file:
        file.write(str(os.getpid()))
    Relay().serve(local, tunnel)


if __name__ == "__main__":
    main()
