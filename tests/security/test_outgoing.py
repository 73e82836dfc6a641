"""Where the server connects to because somebody asked for it, and what it says there."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from aiohttp import web

from sandlot import addresses
from sandlot.addresses import is_public
from sandlot.engine.core.errors import EngineError, StepFailed
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.references import parse_image
from sandlot.engine.node.images.registry import Registries
from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.model import Webhook
from sandlot.platform.events.webhook_http import HttpWebhookTransport

INSIDE = [
    *("127.0.0.1", "0.0.0.0", "10.1.2.3", "169.254.169.254", "168.63.129.16", "100.64.0.1", "192.168.1.1", "224.0.0.1"),
    *("::1", "::", "fe80::1", "fe80::1%lo", "fc00::1", "fec0::1", "ff02::1", "::7f00:1"),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
]


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_public_however_they_are_written(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_others_are(address: str) -> None:
    assert is_public(address)


def test_this_hosts_own_address_is_not_public_even_in_an_opened_range() -> None:
    everything = (IPv4Network("0.0.0.0/0"),)
    assert is_public("10.255.255.1", everything) or addresses.is_of_this_host(addresses.IPv4Address("10.255.255.1"))
    assert not is_public("127.0.0.1", everything)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return  # a host without a route has no address but the loopback's
        assert not is_public(probe.getsockname()[0], everything)


@pytest.mark.parametrize("registry", ["[::ffff:7f00:1]:1", "[::1]:1", "[64:ff9b::7f00:1]:1", "127.0.0.1:1"])
async def test_an_image_does_not_lead_the_server_inside(tmp_path: Path, registry: str) -> None:
    registries = Registries(Layers(tmp_path))
    await registries.open()
    try:
        with pytest.raises(EngineError, match="private address"):
            await registries.pull(parse_image(f"{registry}/x"), None, lambda *_: None)
    finally:
        await registries.close()


async def test_passwords_from_roots_netrc_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login root password secret-of-root\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    registries = Registries(Layers(tmp_path / "layers"), trusted=(address,))
    await registries.open()
    try:
        with pytest.raises(StepFailed, match="no such image"):
            await registries.pull(parse_image(f"{address}/x"), None, lambda *_: None)
    finally:
        await registries.close()
        await runner.cleanup()
    assert seen == [None]


async def test_a_webhooks_name_leads_inside_only_if_the_configuration_says_so() -> None:
    async def take(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    named = Webhook(name="named", url=f"http://localhost:{port}/hook", secret="hush")
    try:
        async with HttpWebhookTransport() as transport:
            with pytest.raises(Unavailable, match="private = true"):
                await transport.send(named, b"{}", {})
            await transport.send(replace(named, private=True), b"{}", {})
            await transport.send(replace(named, url=f"http://127.0.0.1:{port}/hook"), b"{}", {})
            with pytest.raises(Unavailable, match="private = true"):
                await transport.send(named, b"{}", {})
    finally:
        await runner.cleanup()
