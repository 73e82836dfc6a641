"""Hosts where something else, like Docker, drops forwarded packets that it does not know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Runs in a network namespace of its own, which plays the host: the machine's firewall is not touched.
HOST = """
import asyncio, contextlib, secrets, socket, subprocess, sys
from ipaddress import IPv4Network
from pathlib import Path
from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network.slots import Slots
from tests.network.world import Guest, inside, run

WORLD = f"sl-tw-{secrets.token_hex(3)}"

def forward_rules():
    return subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, text=True, check=True).stdout

async def main(data_dir):
    instance = secrets.token_hex(3)
    slots = Slots(Path(data_dir), instance, IPv4Network("10.214.252.0/24"), warm=0)
    await slots.open()
    try:
        await slots.open()
        assert forward_rules().count(instance) == 2, forward_rules()
        guest = Guest(await slots.acquire("i1", NetworkPolicy()))
        assert await guest.reaches("198.51.100.10", 80)
        run("iptables", "-F", "FORWARD")
        assert not await guest.reaches("198.51.100.10", 80)
    finally:
        await slots.destroy()
    assert instance not in forward_rules()

run("ip", "link", "set", "lo", "up")
run("iptables", "-P", "FORWARD", "DROP")
run("ip", "netns", "add", WORLD)
try:
    run("ip", "link", "add", "world", "type", "veth", "peer", "name", "eth0", "netns", WORLD)
    run("ip", "-n", WORLD, "addr", "add", "198.51.100.10/24", "dev", "eth0")
    run("ip", "-n", WORLD, "link", "set", "eth0", "up")
    run("ip", "addr", "add", "198.51.100.1/24", "dev", "world")
    run("ip", "link", "set", "world", "up")
    with inside(f"/run/netns/{WORLD}", lambda: socket.create_server(("198.51.100.10", 80))).result(60):
        asyncio.run(main(sys.argv[1]))
finally:
    run("ip", "netns", "del", WORLD)
print("fine")
"""


@pytest.mark.skipif(shutil.which("iptables") is None, reason="without iptables there is no such firewall")
def test_slots_pass_a_firewall_that_drops_what_it_does_not_know(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", HOST, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": "src:."},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
