"""Measures the model gateway beside the same model without it: time to the first byte, the speed of a stream, many streams at once."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import uvicorn
from starlette.types import Receive, Scope, Send

from bench import server

EVENT = b"data: " + json.dumps({"type": "content_block_delta", "delta": {"text": "word " * 10}}).encode() + b"\n\n"
LAST = b'data: {"type": "message_delta", "usage": {"input_tokens": 100, "output_tokens": 1000}}\n\n'
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "go"}]}


async def _model(scope: Scope, receive: Receive, send: Send) -> None:
    """Streams as many events as the header `events` says, `pause` milliseconds apart."""
    headers = dict(scope["headers"])
    while (await receive()).get("more_body", False):
        pass
    events, pause = int(headers.get(b"events", b"1")), float(headers.get(b"pause", b"0")) / 1000
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    step = 1 if pause else 100
    for _ in range(max(1, events // step)):
        await send({"type": "http.response.body", "body": EVENT * step, "more_body": True})
        await asyncio.sleep(pause)
    await send({"type": "http.response.body", "body": LAST})


async def _first_byte(session: aiohttp.ClientSession, url: str, key: str) -> float:
    began = time.perf_counter()
    async with session.post(url, json=BODY, headers={"x-api-key": key, "events": "1"}) as answer:
        await answer.content.readany()
        first = time.perf_counter() - began
        await answer.read()
    return first * 1000


async def _stream(session: aiohttp.ClientSession, url: str, key: str, events: int) -> float:
    began, size = time.perf_counter(), 0
    async with session.post(url, json=BODY, headers={"x-api-key": key, "events": str(events)}) as answer:
        async for part in answer.content.iter_any():
            size += len(part)
    return size / 1e6 / (time.perf_counter() - began)


async def _many(session: aiohttp.ClientSession, url: str, key: str, count: int) -> float:
    """Streams of 50 events, 20 ms apart, all at once: how long until the last has ended."""

    async def one() -> None:
        async with session.post(url, json=BODY, headers={"x-api-key": key, "events": "50", "pause": "20"}) as answer:
            await answer.read()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return time.perf_counter() - began


async def measure(ways: dict[str, tuple[str, str]], rounds: int, events: int) -> dict[str, dict[str, float]]:
    timeout = aiohttp.ClientTimeout(total=600)
    result: dict[str, dict[str, float]] = {name: {} for name in ways}
    firsts: dict[str, list[float]] = {name: [] for name in ways}
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        measured: tuple[tuple[str, Callable[[str, str], Awaitable[float]]], ...] = (
            ("stream_mb_s", lambda url, key: _stream(session, url, key, events)),
            ("streams_60_s", lambda url, key: _many(session, url, key, 60)),
        )
        for _ in range(rounds):
            for name, (url, key) in ways.items():  # in turn, so that a busy moment is nobody's alone
                firsts[name] += [await _first_byte(session, url, key) for _ in range(10)]
        for name, values in firsts.items():
            result[name]["first_byte_ms"] = statistics.median(values)
        for label, ask in measured:
            found: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(5):
                for name, (url, key) in ways.items():
                    found[name].append(await ask(url, key))
            for name, values in found.items():
                result[name][label] = statistics.median(values)
    return result


def _serve(port: int) -> None:
    uvicorn.run(_model, host="127.0.0.1", port=port, log_level="error", lifespan="off")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _run(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    port = _free_port()
    model = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    model.start()
    address = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(
            f'[providers.local]\nkind = "local"\n[models.bench]\napi = "anthropic"\nurl = "{address}"\n'
            "[budgets.everybody]\ncost_usd = 1000\n"
        )
        file.flush()
        try:
            with server.running("container", config=file.name) as environment:
                ways = {
                    "direct": (f"{address}/v1/messages", "none"),
                    "gateway": (f"{environment['E2B_API_URL']}/models/v1/messages", environment["E2B_API_KEY"]),
                }
                return asyncio.run(measure(ways, options.rounds, options.events))
        finally:
            model.terminate()
            model.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="Of ten requests each.")
    parser.add_argument("--events", type=int, default=200_000, help="In the long stream; 100 bytes each.")
    parser.add_argument("--output", type=Path, help="Write the result there as JSON.")
    options = parser.parse_args()
    result = _run(options)
    direct, gateway = result["direct"], result["gateway"]
    print(f"{'':16}{'direct':>10}{'gateway':>10}")
    for name in direct:
        print(f"{name:16}{direct[name]:10.2f}{gateway[name]:10.2f}   {gateway[name] / direct[name]:.2f}x")
    print(f"added to the first byte: {gateway['first_byte_ms'] - direct['first_byte_ms']:.2f} ms")
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
