"""A platform for tests: served on a real port, with real or scripted providers, that can be stopped and started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from sandlot.client import Client
from sandlot.platform.api.deps import Deps
from sandlot.platform.config.configuration import Configuration, load
from sandlot.platform.core.model import RetentionPolicy, Scope, SessionLimits
from sandlot.platform.core.ports import Provider
from sandlot.platform.identity.keys import Access
from sandlot.platform.store import Database, SqlKeys
from sandlot.server.http import Server, build_server
from sandlot.wiring.clock import now
from sandlot.wiring.platform import Setup, platform
from sandlot.wiring.providers import Locate

ADMIN = "the-admin-key-of-the-tests"


def by_url(url: str, key: str, **policy: Any) -> Configuration:
    """A configuration whose only provider is another server, as if it were E2B Cloud."""
    return _with(
        load_text(
            f"""
            [providers.elsewhere]
            kind = "url"
            api_url = "{url}"
            sandbox_url = "{url}"
            domain = "{url.removeprefix("http://").replace("127.0.0.1", "localhost")}"
            key_env = "ELSEWHERE_KEY"
            """,
            {"ELSEWHERE_KEY": key},
        ),
        **policy,
    )


def load_text(text: str, environment: Mapping[str, str] | None = None, *, has_engine: bool = False) -> Configuration:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return load(Path(file.name), environment or {}, has_engine=has_engine)


def scripted(**changes: Any) -> Configuration:
    """For platforms whose providers are given as objects."""
    return _with(load_text("[providers.scripted]\nkind = 'local'\n", has_engine=True), **changes)


def _with(configuration: Configuration, **changes: Any) -> Configuration:
    limits = {name: value for name, value in changes.items() if name in SessionLimits.__dataclass_fields__}
    policy = {name: value for name, value in changes.items() if name in RetentionPolicy.__dataclass_fields__}
    rest = {name: value for name, value in changes.items() if name not in {*limits, *policy}}
    parts = {"limits": replace(configuration.limits, **limits), "policy": replace(configuration.policy, **policy)}
    return configuration.model_copy(update={**parts, **rest})


class Served:
    """Use as an async context manager, or `start`, `stop` and `crash` it by hand. The database outlives it."""

    def __init__(
        self,
        place: Path,
        configuration: Configuration,
        providers: Mapping[str, Provider] | None = None,
        engine: Locate | None = None,
    ) -> None:
        self.place, self.configuration, self._providers, self._engine = place, configuration, providers, engine
        self.port = 0
        self.deps: Deps
        self._stack: AsyncExitStack | None = None
        self._clients: list[Client] = []

    async def start(self) -> None:
        stack = AsyncExitStack()
        given = self._providers
        made = await stack.enter_async_context(
            platform(
                Setup(
                    configuration=self.configuration,
                    database=Database.sqlite(self.place / "platform.db"),
                    version="test",
                    data_dir=self.place,
                    engine=self._engine,
                    admin_secret=lambda: ADMIN,
                    providers=(lambda _: dict(given)) if given is not None else None,
                    keep_alive_s=1.0,
                )
            )
        )
        server = build_server(made, host="127.0.0.1", port=self.port, before_shutdown=made.close)
        loops = asyncio.ensure_future(made.run())
        serving = asyncio.ensure_future(_Quiet.of(server).serve())
        await until(lambda: server.started, what="the platform's start")
        self.port, self._stack, self.deps = server.port, stack, made.deps

        async def end() -> None:
            server.should_exit = True
            await serving
            loops.cancel()
            ended = await asyncio.gather(loops, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError), ended

        stack.push_async_callback(end)

    async def stop(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def http(self, key: str = ADMIN) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers={"X-API-KEY": key}, timeout=60, trust_env=False)

    async def user(self, name: str | None, *scopes: Scope) -> Client:
        """A client with a key of this user's own."""
        return self.client(await self.key(name, *scopes))

    async def key(self, name: str | None, *scopes: Scope) -> str:
        database = Database.sqlite(self.place / "platform.db")
        try:
            access = Access(store=SqlKeys(database), clock=now)
            _, secret = await access.create_key(name="test", user_id=name, scopes=scopes or (Scope.READ, Scope.WRITE))
        finally:
            await database.close()
        return secret

    def client(self, key: str = ADMIN) -> Client:
        self._clients.append(Client(self.url, key))
        return self._clients[-1]

    async def __aenter__(self) -> Served:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)
        await self.stop()


class _Quiet:
    """The tests' own signals are none of the server's business."""

    @staticmethod
    def of(server: Server) -> Server:
        import contextlib

        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        return server


async def until(
    true: Callable[[], bool] | Callable[[], Awaitable[bool]], seconds: float = 60, what: str = "the condition"
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        answer = true()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        await asyncio.sleep(0.02)
