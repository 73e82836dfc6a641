"""Connects its standard input and output with a port of the sandbox: how a host without a route to the sandbox reaches its ports."""

from __future__ import annotations

import os
import select
import socket
import sys

CONNECT_S = 5.0
CHUNK = 64 * 1024
LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def run() -> None:
    """`PORT`: ends with 1 if nothing accepts there, otherwise when either side has ended."""
    end = _connect(int(sys.argv[1]))
    if end is None:
        sys.exit(1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    splice(end, 0, 1)


def splice(end: socket.socket, source: int, sink: int) -> None:
    """Copy both ways until one side ends: nobody is left who could hear the rest."""
    while True:
        for ready in select.select((end.fileno(), source), (), ())[0]:
            data = end.recv(CHUNK) if ready == end.fileno() else os.read(source, CHUNK)
            if not data:
                return
            if ready == end.fileno():
                _write(sink, data)
            else:
                end.sendall(data)


def _write(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _connect(port: int) -> socket.socket | None:
    for family, address in LOOPBACKS:
        end = socket.socket(family, socket.SOCK_STREAM)
        end.settimeout(CONNECT_S)
        try:
            end.connect((address, port))
        except OSError:
            end.close()
            continue
        end.settimeout(None)
        return end
    return None
