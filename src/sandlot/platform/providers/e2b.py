"""Sandboxes from anything that speaks E2B's protocol, through the official SDK: E2B Cloud, our engine, another server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from e2b import AsyncSandbox, SandboxQuery, SandboxState
from e2b.exceptions import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    ServiceBusyException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import CommandExitException
from e2b.sandbox.filesystem.filesystem import FileType

from sandlot.platform.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PlatformError,
    ProviderFull,
    ProviderRefused,
    SandboxGone,
    Unavailable,
)
from sandlot.platform.core.model import ProviderSandbox, SandboxSpec
from sandlot.platform.core.ports import Box, OnOutput, RunningCommand

SESSION_METADATA, PLATFORM_METADATA = "sandlot-session", "sandlot-platform"
CREATE_S = 120.0
REQUEST_S = 60.0
BOX_S = 20.0  # how long a way into a sandbox is used again without asking the provider
MAX_BOXES = 512
PIECE = 256 * 1024
MAX_WORDS = 500
_BUSY = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the provider is, and our key to it. Given to the SDK with every call, never through the environment."""

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
    """One provider of the configuration. `address` is asked for when needed: our own engine's is known only once it listens."""

    def __init__(
        self,
        name: str,
        address: Callable[[], Awaitable[Address]],
        *,
        platform: str,
        template: str | None = None,
        timeout_s: int = 3600,
    ) -> None:
        self.name, self.template, self.timeout_s = name, template, timeout_s
        self._address, self._platform = address, platform
        self._boxes: dict[str, tuple[float, E2BBox]] = {}

    async def create(self, spec: SandboxSpec) -> str:
        address = await self._address()
        with translated(self.name, "start a sandbox"):
            made = await AsyncSandbox.create(
                spec.template,
                timeout=spec.timeout_s,
                envs=dict(spec.envs),
                metadata={**spec.metadata, SESSION_METADATA: spec.session, PLATFORM_METADATA: self._platform},
                # Whatever becomes of us, it does not run for ever, and nothing in it is lost.
                lifecycle={"on_timeout": "pause", "auto_resume": True},
                idempotency_key=spec.session.lower().replace("_", "-"),
                **address.params(CREATE_S),
            )
        self._keep(made, address)
        return made.sandbox_id

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
        found: list[ProviderSandbox] = []
        with translated(self.name, "list sandboxes"):
            pages = AsyncSandbox.list(query=query, limit=100, **address.params())
            while pages.has_next:
                # Looked at again here: a provider that filters nothing must not make us end what is somebody else's.
                page = [
                    info for info in await pages.next_items() if info.metadata.get(PLATFORM_METADATA) == self._platform
                ]
                found += [_provider_sandbox(info) for info in page]
        return found

    def _keep(self, sandbox: AsyncSandbox, address: Address) -> E2BBox:
        if len(self._boxes) >= MAX_BOXES:
            self._boxes.clear()
        box = E2BBox(self.name, sandbox, address.public_scheme, lambda: self._boxes.pop(sandbox.sandbox_id, None))
        self._boxes[sandbox.sandbox_id] = (time.monotonic(), box)
        return box


class E2BBox:
    """A way into one sandbox. What it says about itself is data from inside: bounded, and never acted upon."""

    def __init__(self, provider: str, sandbox: AsyncSandbox, scheme: str, forget: Callable[[], object]) -> None:
        self._provider, self._sandbox, self._scheme, self._forget = provider, sandbox, scheme, forget

    async def start(
        self, command: str, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_output: OnOutput
    ) -> RunningCommand:
        async def stdout(text: str) -> None:
            await on_output("stdout", text)

        async def stderr(text: str) -> None:
            await on_output("stderr", text)

        with self._acting("start a command"):
            handle = await self._sandbox.commands.run(
                command,
                background=True,
                envs=dict(envs),
                cwd=cwd,
                user=user,
                on_stdout=stdout,
                on_stderr=stderr,
                timeout=0,
                retain_output=False,
            )
        return _E2BCommand(self, handle)

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        with self._acting("write a file"):
            await self._sandbox.files.write(path, content)

    async def size(self, path: str) -> int:
        with self._acting("look at a file"):
            info = await self._sandbox.files.get_info(path)
        if info.type is not FileType.FILE:
            raise InvalidRequest(f"could not read {path[:200]!r}: it is not a file")
        return info.size

    async def read(self, path: str) -> AsyncIterator[bytes]:
        with self._acting("read a file"):
            reader = await self._sandbox.files.read(path, format="stream")
            async with reader:
                async for piece in reader:
                    yield bytes(piece)

    def url(self, port: int) -> str:
        return f"{self._scheme}://{self._sandbox.get_host(port)}"

    @contextmanager
    def _acting(self, doing: str) -> Iterator[None]:
        try:
            with translated(self._provider, doing, inside=True):
                yield
        except (SandboxGone, Unavailable):
            self._forget()
            raise


class _E2BCommand:
    def __init__(self, box: E2BBox, handle: Any) -> None:
        self._box, self._handle = box, handle
        self.pid: int = handle.pid

    async def wait(self) -> int:
        try:
            with self._box._acting("follow a command"):
                result = await self._handle.wait()
                return int(result.exit_code)
        except CommandExitException as ended:
            return int(ended.exit_code)

    async def kill(self) -> None:
        with self._box._acting("end a command"):
            await self._handle.kill()


def _provider_sandbox(info: Any) -> ProviderSandbox:
    return ProviderSandbox(
        id=info.sandbox_id,
        session=info.metadata.get(SESSION_METADATA, ""),
        is_paused=info.state == SandboxState.PAUSED,
    )


@contextmanager
def translated(provider: str, doing: str, *, inside: bool = False) -> Iterator[None]:
    """Raise our errors for the SDK's. `inside`: the answer is the sandbox's own, not the provider's."""
    try:
        yield
    except (PlatformError, CommandExitException):
        raise
    except Exception as error:
        if not isinstance(error, (OSError, httpx.HTTPError)) and not _is_foreign(error):
            raise
        raise _translate(error, provider, doing, inside) from error


def _is_foreign(error: Exception) -> bool:
    # The SDK raises bare `Exception` here and there, and lets errors of its transports through.
    return type(error) is Exception or type(error).__module__.split(".")[0] in ("e2b", "pyqwest", "connectrpc")


def _translate(error: Exception, provider: str, doing: str, inside: bool) -> PlatformError:
    words = str(error)[:MAX_WORDS]
    if isinstance(error, (SandboxNotFoundException, SandboxNotRunningException)):
        return SandboxGone(f"could not {doing}: provider {provider!r} has this sandbox no more, or paused it")
    if isinstance(error, FileNotFoundException):
        return NotFound(f"could not {doing}: {words}")
    if isinstance(error, InvalidArgumentException) or (inside and isinstance(error, AuthenticationException)):
        return InvalidRequest(f"could not {doing}: {words}")
    if isinstance(error, NotEnoughSpaceException):
        return Conflict(f"could not {doing}: the sandbox has no space left")
    if isinstance(error, (RateLimitException, ServiceBusyException)):
        return ProviderFull(f"could not {doing}: provider {provider!r} has no room just now ({words})")
    if isinstance(error, AuthenticationException):
        return ProviderRefused(
            f"could not {doing}: provider {provider!r} refuses this platform's key; the operator must renew it"
        )
    status = getattr(error, "status_code", None)
    if isinstance(error, SandboxException) and not isinstance(error, TimeoutException):
        if status is None and inside:
            return InvalidRequest(f"could not {doing}: {words}")
        if status is not None and status not in _BUSY and status < 500:
            return ProviderRefused(f"could not {doing}: provider {provider!r} answers: {words}")
    return Unavailable(f"could not {doing}: provider {provider!r} does not answer ({type(error).__name__}); try again")
