"""The provider of everything that speaks E2B's protocol, through the official SDK: E2B Cloud, our engine, another server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from e2b import AsyncSandbox, AsyncSecret, SandboxQuery, SandboxState, SecretNotFoundException

from sandlot.platform.core.console import GrantedAddress
from sandlot.platform.core.errors import InvalidRequest, SandboxGone
from sandlot.platform.core.model import BoundSecret, ProviderSandbox, SandboxNetwork, SandboxSpec
from sandlot.platform.core.ports import Box
from sandlot.platform.providers.e2b_box import E2BBox
from sandlot.platform.providers.e2b_errors import translated
from sandlot.platform.providers.e2b_inspection import E2BInspection

SESSION_METADATA, PLATFORM_METADATA = "sandlot-session", "sandlot-platform"
CREATE_S = 120.0
REQUEST_S = 60.0
BOX_S = 20.0  # how long a connection to a sandbox is reused without asking the provider
MAX_BOXES = 512
EVERYTHING = "0.0.0.0/0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A provider's address and our key. Given to the SDK with every call, never through the environment."""

    api_url: str
    domain: str
    key: str = field(repr=False)
    sandbox_url: str | None = None  # one address for the traffic of all sandboxes; without it, a host name for each
    public_scheme: str = "https"  # of the addresses that others reach ports at

    def params(self, request_timeout: float = REQUEST_S) -> dict[str, Any]:
        return {
            "api_key": self.key,
            "api_url": self.api_url,
            "domain": self.domain,
            "sandbox_url": self.sandbox_url,
            "debug": False,
            "http_version": "1.1",
            "retries": 0,
            "request_timeout": request_timeout,
        }


class E2BProvider:
    """One provider of the configuration. `address` is called when needed: our own engine's is known only once it listens."""

    def __init__(
        self,
        name: str,
        address: Callable[[], Awaitable[Address]],
        *,
        platform: str,
        template: str | None = None,
        timeout_s: int = 3600,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """`secrets`: values of those that leave with requests; the provider keeps them."""
        self._secrets, self._given = secrets or {}, set[str]()
        self.name, self.template, self.timeout_s = name, template, timeout_s
        self._address, self._platform = address, platform
        self._boxes: dict[str, tuple[float, E2BBox]] = {}
        self.inspection = E2BInspection(name, self._params)

    async def _params(self) -> dict[str, Any]:
        return (await self._address()).params()

    async def create(self, spec: SandboxSpec) -> str:
        address = await self._address()
        await self._give(spec.network.secrets, address)
        with translated(self.name, "start a sandbox"):
            made = await AsyncSandbox.create(
                spec.template,
                timeout=spec.timeout_s,
                envs=dict(spec.envs),
                metadata={**spec.metadata, SESSION_METADATA: spec.session, PLATFORM_METADATA: self._platform},
                # If this platform stops, the sandbox does not run for ever, and nothing in it is lost.
                lifecycle={"on_timeout": "pause", "auto_resume": True} if spec.is_kept else {"on_timeout": "kill"},
                **_reachable(spec.network, address),
                idempotency_key=spec.session.lower().replace("_", "-"),
                **address.params(CREATE_S),
            )
        self._keep(made, address)
        return made.sandbox_id

    async def _give(self, wanted: Sequence[BoundSecret], address: Address) -> None:
        """Have the provider know the values, once in the life of this process: the configuration may have changed."""
        for name in {bound.name for bound in wanted} - self._given:
            if name not in self._secrets:
                raise InvalidRequest(f"secret {name!r} is not in the configuration any more; add it to [secrets]")
            value, kept = self._secrets[name], _kept_name(name)
            with translated(self.name, "keep a secret"):
                try:
                    await AsyncSecret.update(kept, value, **address.params())
                except SecretNotFoundException:
                    await AsyncSecret.create(kept, value, **address.params())
            self._given.add(name)

    async def connect(self, sandbox_id: str, timeout_s: int) -> Box:
        known = self._boxes.get(sandbox_id)
        if known is not None and time.monotonic() - known[0] < BOX_S:
            return known[1]
        address = await self._address()
        with translated(self.name, "reach a sandbox"):
            made = await AsyncSandbox.connect(sandbox_id, timeout=timeout_s, **address.params(CREATE_S))
        return self._keep(made, address)

    async def pause(self, sandbox_id: str) -> None:
        self._boxes.pop(sandbox_id, None)
        address = await self._address()
        with translated(self.name, "pause a sandbox"):
            await AsyncSandbox.pause(sandbox_id, **address.params(CREATE_S))

    async def kill(self, sandbox_id: str) -> None:
        self._boxes.pop(sandbox_id, None)
        address = await self._address()
        with translated(self.name, "end a sandbox"):
            await AsyncSandbox.kill(sandbox_id, **address.params())

    async def set_timeout(self, sandbox_id: str, timeout_s: int) -> None:
        address = await self._address()
        with translated(self.name, "change the timeout of a sandbox"):
            await AsyncSandbox.set_timeout(sandbox_id, timeout_s, **address.params())

    async def find(self, sandbox_id: str) -> ProviderSandbox | None:
        address = await self._address()
        try:
            with translated(self.name, "look at a sandbox"):
                info = await AsyncSandbox.get_info(sandbox_id, **address.params())
        except SandboxGone:
            return None
        return _provider_sandbox(info)

    async def inventory(self) -> Sequence[ProviderSandbox]:
        address = await self._address()
        query = SandboxQuery(metadata={PLATFORM_METADATA: self._platform})
        sandboxes: list[ProviderSandbox] = []
        with translated(self.name, "list sandboxes"):
            pages = AsyncSandbox.list(query=query, limit=100, **address.params())
            while pages.has_next:
                # Filtered here again: a provider that ignores the query must not make us end other people's sandboxes.
                page = [
                    info for info in await pages.next_items() if info.metadata.get(PLATFORM_METADATA) == self._platform
                ]
                sandboxes += [_provider_sandbox(info) for info in page]
        return sandboxes

    async def fork(self, sandbox_id: str, timeout_s: int) -> str:
        address = await self._address()
        with translated(self.name, "fork a sandbox"):
            made = (await AsyncSandbox.fork(sandbox_id, timeout=timeout_s, **address.params(CREATE_S)))[0]
            if isinstance(made, Exception):
                raise made
        return made.sandbox_id

    async def grant(self, sandbox_id: str, port: int) -> GrantedAddress | None:
        """By a route that E2B does not have: our engine's."""
        address, found = await self._address(), await self.inspection.grant(sandbox_id, port)
        if found is None:
            return None
        host = f"{address.public_scheme}://{port}-{sandbox_id}.{address.domain}/"
        if not found.is_needed:
            return GrantedAddress(url=host)
        return GrantedAddress(url=f"{host}?{found.parameter}={found.token}", ends_at=found.ends_at)

    async def snapshot(self, sandbox_id: str, name: str) -> str:
        address = await self._address()
        with translated(self.name, "take a snapshot of a sandbox"):
            made = await AsyncSandbox.create_snapshot(sandbox_id, name=name, **address.params(CREATE_S))
        return str(made.snapshot_id)

    async def drop_snapshot(self, snapshot_id: str) -> None:
        address = await self._address()
        with translated(self.name, "delete a snapshot"):
            await AsyncSandbox.delete_snapshot(snapshot_id, **address.params())

    def _keep(self, sandbox: AsyncSandbox, address: Address) -> E2BBox:
        if len(self._boxes) >= MAX_BOXES:
            self._boxes.clear()
        box = E2BBox(
            self.name,
            sandbox,
            scheme=address.public_scheme,
            traffic_url=address.sandbox_url,
            forget=lambda: self._boxes.pop(sandbox.sandbox_id, None),
        )
        self._boxes[sandbox.sandbox_id] = (time.monotonic(), box)
        return box


def _kept_name(name: str) -> str:
    return f"platform-{name}"


def _reachable(network: SandboxNetwork, address: Address) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for bound in network.secrets:
        for host in bound.hosts:
            rule = rules.setdefault(host.lower(), [{"transform": {"headers": {}}}])[0]
            rule["transform"]["headers"][bound.placeholder] = AsyncSecret.fill(_kept_name(bound.name))
    ruled = {"rules": rules} if rules else {}
    if network.is_private:
        return {"network": {"allow_public_traffic": False, **_mask(address), **ruled}}
    if network.internet:
        return {"network": ruled} if ruled else {}
    if not network.allow:
        return {"allow_internet_access": False}
    return {"network": {"deny_out": [EVERYTHING], "allow_out": list(network.allow), **ruled}}


def _mask(address: Address) -> dict[str, str]:
    """Services that answer only to a loopback name, as debuggers do, must see one. Not asked for where they do anyway."""
    host = urlsplit(address.sandbox_url).hostname if address.sandbox_url else None
    with contextlib.suppress(ValueError):
        if host is not None and (host == "localhost" or ip_address(host)):
            return {}
    return {"mask_request_host": "localhost:${PORT}"}


def _provider_sandbox(info: Any) -> ProviderSandbox:
    return ProviderSandbox(
        id=info.sandbox_id,
        session=info.metadata.get(SESSION_METADATA, ""),
        is_paused=info.state == SandboxState.PAUSED,
    )
