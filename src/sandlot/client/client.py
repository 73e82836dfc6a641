"""The client itself: one method per route, and streams that find their way back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from sandlot.client.errors import ClientError, Unavailable, error_of
from sandlot.client.records import CommandOutput, CommandResult, Event, SandboxInfo, ToolsAccess
from sandlot.client.repositories import PullRequests, Repositories
from sandlot.client.tasks import Tasks

PATIENCE = httpx.Timeout(60.0, read=None)  # answers come when the work is done
RETRY_S = 1.0


class Client:
    """A caller of the platform, with a key of its own."""

    def __init__(self, url: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"X-API-KEY": key},
            timeout=PATIENCE,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),  # each stream takes one
            transport=transport,
            trust_env=False,
        )
        self.repositories, self.pull_requests, self.tasks = Repositories(self), PullRequests(self), Tasks(self)

    async def create(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        template_id: str | None = None,
        agent_type: str | None = None,
        provider: str | None = None,
        backend: str | None = None,
        capabilities: Sequence[str] = (),
        envs: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: int | None = None,
        wait: float | None = None,
    ) -> Sandbox:
        """Your sandbox of that session: new, found again, or resumed. Look at `info.status`: it may still be queued."""
        body = {
            "user_id": user_id,
            "session_id": session_id,
            "template_id": template_id,
            "agent_type": agent_type,
            "provider": provider,
            "backend": backend,
            "capabilities": list(capabilities),
            "envs": dict(envs or {}),
            "metadata": dict(metadata or {}),
            "timeout": timeout,
            "wait": wait,
        }
        return Sandbox(self, SandboxInfo.of(await self.post("create", body)))

    async def connect(self, sandbox_id: str, *, wait: float | None = None) -> Sandbox:
        """A sandbox you know; resumed if it is paused."""
        return Sandbox(self, SandboxInfo.of(await self.post("connect", {"sandbox_id": sandbox_id, "wait": wait})))

    async def list(self, *, user_id: str | None = None) -> list[SandboxInfo]:
        found: list[SandboxInfo] = []
        after: str | None = None
        while True:
            params = {"user_id": user_id, "after": after, "limit": 500}
            page = await self.get("/sandboxes/list", params)
            found += [SandboxInfo.of(row) for row in page["sandboxes"]]
            after = page["next"]
            if after is None:
                return found

    async def events(
        self,
        *,
        after: int | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        sandbox_id: str | None = None,
        subject: str | None = None,
        types: Collection[str] = (),
    ) -> AsyncIterator[Event]:
        """What happens, each event once, over as many connections as it takes. `after=0`: from the beginning.

        `subject` is `kind:id` or a kind; `types` may end in `.*`.
        """
        named = {"user_id": user_id, "session_id": session_id, "sandbox_id": sandbox_id, "subject": subject}
        params = {name: value for name, value in named.items() if value is not None}
        if types:
            params["type"] = ",".join(types)
        while True:
            try:
                async for event in self._events(params, after):
                    after = event.id
                    yield event
            except (Unavailable, httpx.TransportError):
                pass
            await asyncio.sleep(RETRY_S)

    async def _events(self, params: Mapping[str, str], after: int | None) -> AsyncIterator[Event]:
        headers = {"Last-Event-ID": str(after)} if after is not None else {}
        async for line in self.lines("/events", params, headers):
            if line.startswith("data: "):
                yield Event.of(json.loads(line[6:]))

    async def post(self, route: str, body: Mapping[str, Any]) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        return await self.ask("POST", f"/sandboxes/{route}", json=given)

    async def get(self, path: str, params: Mapping[str, Any]) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        return await self.ask("GET", path, params=given)

    async def stream(self, route: str, body: Mapping[str, Any]) -> AsyncIterator[str]:
        async with self._http.stream("POST", f"/sandboxes/{route}", json=dict(body)) as answer:
            await _check(answer)
            async for line in answer.aiter_lines():
                yield line

    async def upload(self, sandbox_id: str, path: str, content: bytes | AsyncIterator[bytes]) -> int:
        params = {"sandbox_id": sandbox_id, "path": path}
        answer = await self.ask("POST", "/sandboxes/upload-file", params=params, content=content)
        return int(answer["size"])

    async def download(self, sandbox_id: str, path: str) -> AsyncIterator[bytes]:
        body = {"sandbox_id": sandbox_id, "path": path}
        async with self._http.stream("POST", "/sandboxes/download-file", json=body) as answer:
            await _check(answer)
            async for piece in answer.aiter_bytes():
                yield piece

    async def lines(self, path: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> AsyncIterator[str]:
        """A stream of events, line by line."""
        timeout = httpx.Timeout(10.0, read=60.0)  # keep-alives come much sooner
        async with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as answer:
            await _check(answer)
            async for line in answer.aiter_lines():
                yield line

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        """A file, as it comes."""
        async with self._http.stream("GET", path) as answer:
            await _check(answer)
            async for piece in answer.aiter_bytes():
                yield piece

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Any route: `options` are those of httpx. Returns what JSON there is in the answer, else None."""
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise Unavailable(0, f"the platform at {self._http.base_url} does not answer ({error})") from error
        if answer.status_code >= 300:
            raise error_of(answer, answer.content)
        return answer.json() if answer.content else None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()


class Sandbox:
    """One of your sandboxes."""

    def __init__(self, client: Client, info: SandboxInfo) -> None:
        self._client, self.info = client, info

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    async def status(self) -> SandboxInfo:
        self.info = SandboxInfo.of(await self._client.get("/sandboxes/status", {"sandbox_id": self.id}))
        return self.info

    async def set_timeout(self, seconds: int) -> SandboxInfo:
        self.info = SandboxInfo.of(await self._post("timeout", timeout=seconds))
        return self.info

    async def delete(self) -> None:
        await self._post("delete")

    async def expose_port(self, port: int) -> str:
        return str((await self._post("expose-port", port=port))["url"])

    async def tools(self) -> ToolsAccess:
        """Where the MCP tools inside it are, and a token for them."""
        answer = await self._post("tools")
        return ToolsAccess(url=str(answer["url"]), token=str(answer["token"]))

    async def run(
        self,
        command: str,
        *,
        background: bool = False,
        keep_awake: bool = False,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command to its end, or start it in the background.

        `keep_awake`, for the background: the sandbox is not paused for idleness while the command runs.
        """
        modes = {"background": background, "keep_awake": keep_awake}
        options = {"cwd": cwd, "envs": dict(envs or {}), "timeout": timeout, **modes}
        return CommandResult.of(await self._post("run-command", command=command, **options))

    async def run_streamed(
        self, command: str, *, cwd: str | None = None, envs: Mapping[str, str] | None = None, timeout: float = 300.0
    ) -> AsyncIterator[CommandOutput]:
        body = {"sandbox_id": self.id, "command": command, "stream": True, "envs": dict(envs or {}), "timeout": timeout}
        async for line in self._client.stream("run-command", {**body, **({"cwd": cwd} if cwd else {})}):
            told = json.loads(line)
            if told["type"] == "error":
                raise ClientError(told["code"], told["message"])
            fields = {name: told[name] for name in ("data", "exit_code", "pid") if name in told}
            yield CommandOutput(type=told["type"], **fields)

    async def write_file(self, path: str, content: str) -> None:
        await self._post("write-file", path=path, content=content)

    async def read_file(self, path: str) -> str:
        return str((await self._post("read-file", path=path))["content"])

    async def upload_file(self, path: str, content: bytes | AsyncIterator[bytes]) -> int:
        return await self._client.upload(self.id, path, content)

    async def download_file(self, path: str) -> bytes:
        return b"".join([piece async for piece in self._client.download(self.id, path)])

    async def _post(self, route: str, **body: Any) -> Any:
        return await self._client.post(route, {"sandbox_id": self.id, **body})


async def _check(answer: httpx.Response) -> None:
    if answer.status_code >= 300:
        raise error_of(answer, await answer.aread())
