"""Measures the tunnel: how fast large bodies go from a sandbox to the platform and back, and how long a small request takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from pathlib import Path

from bench import server
from sandlot.platform.core.model import SandboxSpec
from sandlot.platform.core.ports import Box, Channel
from sandlot.platform.providers.e2b import Address, E2BProvider
from sandlot.platform.tunnel.routes import Receive, Scope, Send
from sandlot.platform.tunnel.service import Tunnels

RUNTIMES = ("container", "gvisor")
HERE = "http://127.0.0.1:6070/bench"
PIECE = b"x" * (256 << 10)
SMALL_REQUESTS = 20


async def _route(scope: Scope, receive: Receive, send: Send) -> None:
    """Takes any body; answers `/N` with N MiB."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(int(scope["path"].strip("/")) * (1 << 20) // len(PIECE)):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _say(box: Box, command: str) -> str:
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        said.append(text)

    running = await box.commands.start(command, cwd=None, envs={}, user=None, on_output=listen)
    await running.wait()
    return "".join(said)


async def measure(environment: dict[str, str], rounds: int, mib: int) -> dict[str, float]:
    url = environment["E2B_API_URL"]
    address = Address(api_url=url, domain=url.partition("://")[2], key=environment["E2B_API_KEY"], sandbox_url=url)

    async def known() -> Address:
        return address

    provider = E2BProvider("bench", known, platform="bench")
    sandbox = await provider.create(SandboxSpec(session="bench", template=None, timeout_s=900, envs={}, metadata={}))
    box = await provider.connect(sandbox, 900)

    async def reach(_: str) -> Box | None:
        return box

    tunnels = Tunnels(reach)
    try:
        await (await tunnels.open(sandbox, "bench", {"bench": _route})).ready()
        await _say(box, f"head -c {mib}M /dev/zero > /tmp/body")
        asked = {
            "up_mb_s": f"curl -s -o /dev/null -w '%{{speed_upload}}' -T /tmp/body -H Expect: {HERE}/0",
            "down_mb_s": f"curl -s -o /dev/null -w '%{{speed_download}}' {HERE}/{mib}",
        }
        times = f"for i in $(seq {SMALL_REQUESTS}); do curl -s -o /dev/null -w '%{{time_total}} ' {HERE}/0; done"
        found: dict[str, list[float]] = {name: [] for name in (*asked, "request_ms")}
        for _ in range(rounds):
            for name, command in asked.items():
                found[name].append(float(await _say(box, command)) / 1e6)
            found["request_ms"] += [float(one) * 1000 for one in (await _say(box, times)).split()]
        return {name: round(statistics.median(values), 2) for name, values in found.items()}
    finally:
        await tunnels.close()
        await provider.kill(sandbox)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=256, help="The size of the large bodies.")
    parser.add_argument("--output", type=Path, help="Write the result there as JSON.")
    options = parser.parse_args()
    result = {}
    for runtime in RUNTIMES:
        with server.running(runtime) as environment:
            result[runtime] = asyncio.run(measure(environment, options.rounds, options.mib))
        print(f"{runtime:10} " + "   ".join(f"{name} {value:8.2f}" for name, value in result[runtime].items()))
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
