"""Connections to the outside on behalf of a sandbox: to addresses the relays looked up, straight or through the sandbox's proxy."""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401 - needed for names in TLS, and not to be found once this process is nobody
import ssl
from collections.abc import Callable
from ipaddress import IPv4Address

from sandlot.engine.core.model import EgressProxy
from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network.resolver import Resolver
from sandlot.engine.node.network.wire_sources import HeldWire, WireSource
from sandlot.engine.node.network.wires import CHUNK, StreamWire, TlsWire, Wire

CONNECT_S = 10
HANDSHAKE_S = 10
_SOCKS, _CONNECT, _BY_ADDRESS, _BY_NAME = 5, 1, 1, 3
_NO_LOGIN, _LOGIN = 0, 2


class Dialer:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._authorities: str | None = None
        self._context: ssl.SSLContext | None = None

    def trust(self, authorities: str) -> None:
        """Certificates (PEM) that servers may be signed by besides those that this host trusts."""
        self._authorities = authorities

    async def by_name(self, name: str, port: int, rules: Rules) -> tuple[IPv4Address | None, Wire]:
        """Where a name leads, as far as the rules let the sandbox go there; no address: the proxy looked it up."""
        is_named = bool(rules.domains) and rules.permits_name(name)
        if rules.proxy is not None and is_named:
            return None, await self._through(rules.proxy, name, port)
        return await self._first(name, port, rules, lambda address: is_named or rules.permits(address))

    async def by_address(self, address: IPv4Address, port: int, rules: Rules) -> Wire:
        if not self._resolver.reachable(address):
            raise ConnectionError("an address that is closed to sandboxes")
        if rules.proxy is not None:
            return await self._through(rules.proxy, address, port)
        return await _open(address, port)

    async def secured(self, below: Wire, name: str) -> Wire:
        """TLS with the server of this name. Raises `ssl.SSLError`."""
        if self._context is None:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
            if self._authorities:
                self._context.load_verify_locations(cadata=self._authorities)
        wire = TlsWire(below, self._context, name=name)
        await wire.shake_hands(HANDSHAKE_S)
        return wire

    async def _first(
        self, name: str, port: int, rules: Rules, may: Callable[[IPv4Address], bool]
    ) -> tuple[IPv4Address, Wire]:
        for address in filter(may, await self._resolver.addresses(name, rules)):
            with contextlib.suppress(OSError, TimeoutError):
                return address, await self.by_address(address, port, rules)
        raise ConnectionError("no address of the name answers")

    async def _through(self, proxy: EgressProxy, host: IPv4Address | str, port: int) -> Wire:
        """Nothing leaves beside the proxy: where it fails, so does the connection."""
        _, below = await self._first(proxy.host, proxy.port, Rules(), lambda _: True)
        try:
            async with asyncio.timeout(CONNECT_S + HANDSHAKE_S):
                wire: Wire = below
                if proxy.use_tls:
                    secured = TlsWire(below, _proxy_trust(proxy), name=proxy.server_name or proxy.host)
                    await secured.shake_hands(HANDSHAKE_S)
                    wire = secured
                return await _ask(wire, proxy, host, port)
        except BaseException as error:
            below.abort()
            if isinstance(error, ssl.SSLError | EOFError | ValueError):
                raise ConnectionError(f"the proxy does not answer as one: {error}") from error
            raise


async def _open(address: IPv4Address, port: int) -> Wire:
    async with asyncio.timeout(CONNECT_S):
        return StreamWire(*await asyncio.open_connection(str(address), port, limit=CHUNK))


def _proxy_trust(proxy: EgressProxy) -> ssl.SSLContext:
    trust = ssl.create_default_context(cadata=proxy.ca_cert)
    trust.minimum_version = ssl.TLSVersion.TLSv1_2
    return trust


async def _ask(wire: Wire, proxy: EgressProxy, host: IPv4Address | str, port: int) -> Wire:
    """SOCKS 5 (RFC 1928), with a login by name and password (RFC 1929) where there is one."""
    source = WireSource(wire)
    method = _NO_LOGIN if proxy.username is None else _LOGIN
    await wire.write(bytes([_SOCKS, 1, method]))
    if await source.exactly(2) != bytes([_SOCKS, method]):
        raise ConnectionError("the proxy does not take this kind of login")
    if proxy.username is not None:
        name, password = proxy.username.encode(), (proxy.password or "").encode()
        await wire.write(bytes([1, len(name)]) + name + bytes([len(password)]) + password)
        if (await source.exactly(2))[1] != 0:
            raise ConnectionError("the proxy refuses this login")
    if isinstance(host, str):
        target = bytes([_BY_NAME, len(host)]) + host.encode()
    else:
        target = bytes([_BY_ADDRESS]) + host.packed
    await wire.write(bytes([_SOCKS, _CONNECT, 0]) + target + port.to_bytes(2))
    version, status, _, kind = await source.exactly(4)
    if version != _SOCKS or status != 0:
        raise ConnectionError("the proxy does not connect there")
    sizes = {_BY_ADDRESS: 4, 4: 16}
    size = (await source.exactly(1))[0] if kind == _BY_NAME else sizes.get(kind, -1)
    if size < 0:
        raise ConnectionError("the proxy answers in an unknown way")
    await source.exactly(size + 2)
    return HeldWire(wire, source.rest())
