"""The least that a server can do with files: takes uploads and throws them away, answers downloads from memory.

What the SDK reaches against it is the SDK's own limit on this machine. Run as `python -m bench.bare BYTES`; it says its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

_WRITTEN = json.dumps([{"name": "file", "type": "file", "path": "/file"}]).encode()


@contextlib.contextmanager
def running(size: int) -> Iterator[str]:
    """The address of such a server, in a process of its own, as the real one is."""
    process = subprocess.Popen([sys.executable, "-m", "bench.bare", str(size)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


async def _serve(size: int) -> None:
    content = bytes(size)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = _WRITTEN if await _discard(head, reader) else content
                kind = b"application/json" if body is _WRITTEN else b"application/octet-stream"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)))
                writer.write(body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _discard(head: bytes, reader: asyncio.StreamReader) -> bool:
    """Read a request's body; false if it has none."""
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
        return True
    if b"content-length: " not in head:
        return False
    left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while left:
        left -= len(await reader.read(min(left, 1 << 20)) or b"")
    return True


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
