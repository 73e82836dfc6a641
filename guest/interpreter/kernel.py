"""One Jupyter kernel: its channels, and the messages that one cell after another brings."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import uuid
from collections.abc import AsyncIterator, Mapping

import zmq.asyncio
from jupyter_client import AsyncKernelClient

from interpreter import memory
from interpreter.inbox import Inbox
from interpreter.outputs import Message
from interpreter.process import KernelProcess

log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
ASK_AGAIN_S = 0.1
QUIET_LIMIT_S = 60.0  # for code of ours that shows nothing
STRAGGLER_LIMIT_S = 10.0  # between the reply to a cell and the report that it is done, which take different ways
LAST_WORDS_S = 0.1  # what a kernel printed before it died is still on its way


class KernelDied(Exception):
    """The process of a kernel is gone. `status` is as subprocess has it: negative for signals."""

    def __init__(self, status: int | None, *, out_of_memory: bool) -> None:
        self.status = status
        self.out_of_memory = out_of_memory
        super().__init__(f"the kernel's process ended with {status}")


class Kernel:
    def __init__(self, process: KernelProcess) -> None:
        self.language = process.language
        self._process = process
        self._client = AsyncKernelClient(context=_sockets(), connection_file=str(process.connection_file))
        self._inbox = Inbox(self._hold, self._release)
        self._wanted: set[str] = set()  # requests whose messages somebody waits for
        self._readers: list[asyncio.Task[None]] = []
        self._kills_before: int | None = None
        self._ended_for_memory = False
        self._dead = False

    async def start(self) -> None:
        """Ready for cells; raises KernelDied or TimeoutError, and then nothing is left."""
        try:
            self._client.load_connection_file()
            self._client.start_channels(hb=False)
            self._readers = [
                asyncio.create_task(self._read(channel.socket))
                for channel in (self._client.iopub_channel, self._client.shell_channel)
            ]
            await self._first_answer()
            if self.language.setup:
                await self.run_quietly(self.language.setup)
        except BaseException:
            await self.stop()
            raise

    async def _first_answer(self) -> None:
        """Ask until the kernel answers and is heard on the channel of outputs."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + START_LIMIT_S
        missing = {"kernel_info_reply", "status"}
        while missing:
            if not self._process.alive:
                raise self._death()
            if clock() > deadline:
                raise TimeoutError(f"the {self.language.name} kernel did not answer within {START_LIMIT_S:.0f} s")
            self._wanted = self._wanted | {self._client.kernel_info()}
            self._client.shell_channel.socket.get(zmq.EVENTS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN_S):
                    while missing:
                        missing.discard((await self._inbox.get())["msg_type"])
        self._wanted = set()

    @property
    def alive(self) -> bool:
        self.reap()  # the signal that tells of its end may still be on its way
        return not self._dead

    def reap(self) -> None:
        """A child of the server changed its state: see whether it was this kernel that ended."""
        if not self._dead and self._readers and not self._process.alive:
            self._dead = True
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._inbox.close, self._death())

    def _death(self) -> KernelDied:
        status = self._process.status
        seen = status == -signal.SIGKILL and (memory.kills() or 0) > (self._kills_before or 0)
        return KernelDied(status, out_of_memory=seen or self._ended_for_memory)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def inherited(self) -> Mapping[str, str]:
        """The variables it was born with."""
        return self._process.environment if self.language.inherits else {}

    def end_for_memory(self) -> None:
        """With all that it started: one of them may be what fills the memory."""
        self._ended_for_memory = True
        self._process.send_to_group(signal.SIGKILL)

    async def run(self, code: str) -> AsyncIterator[Message]:
        """Messages of a cell, its `execute_reply` last; raises KernelDied."""
        self._kills_before = memory.kills()
        request = self._send(code, silent=False)
        try:
            reply = None
            async for message in self._answers({request}):
                if message["msg_type"] == "execute_reply":
                    reply = message
                else:
                    yield message
            if self.language.flush:
                async for message in self._stragglers(request):
                    yield message
            if reply is not None:
                yield reply
        finally:
            self._wanted = set()

    async def run_quietly(self, code: str) -> None:
        """Code of ours: what it shows goes nowhere."""
        request = self._send(code, silent=True)
        try:
            async with asyncio.timeout(QUIET_LIMIT_S):
                async for message in self._answers({request}):
                    if message["msg_type"] == "execute_reply" and message["content"].get("status") == "error":
                        log.warning("%s could not run %r: %s", self.language.name, code, message["content"])
        except TimeoutError:
            name = self.language.name
            raise TimeoutError(f"the {name} kernel did not take its variables within {QUIET_LIMIT_S:.0f} s") from None
        finally:
            self._wanted = set()

    def _send(self, code: str, *, silent: bool) -> str:
        request: str = self._client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False
        )
        # jupyter_client sends past the asyncio side of the socket, which may then miss that a reply came; asking wakes it.
        self._client.shell_channel.socket.get(zmq.EVENTS)
        if not self._wanted:
            self._inbox.clear()
        self._wanted = self._wanted | {request}
        return request

    async def _answers(self, requests: set[str]) -> AsyncIterator[Message]:
        """Messages until each request was replied to and reported as done."""
        missing = {(request, kind) for request in requests for kind in ("idle", "reply")}
        while missing:
            limit = None if len(missing) == 2 * len(requests) else STRAGGLER_LIMIT_S
            try:
                message = await asyncio.wait_for(self._inbox.get(), limit)
            except TimeoutError:
                log.warning("a %s kernel never said that it was done; missing: %s", self.language.name, missing)
                return
            request = message["parent_header"]["msg_id"]
            if message["msg_type"] == "execute_reply":
                missing.discard((request, "reply"))
            elif message["msg_type"] == "status":
                if message["content"].get("execution_state") == "idle":
                    missing.discard((request, "idle"))
                continue
            yield message

    async def _stragglers(self, request: str) -> AsyncIterator[Message]:
        """What the cell printed and was not sent yet when the kernel reported it done."""
        token = uuid.uuid4().hex
        flush = self._send(self.language.flush.replace("{token}", f'"{token}"'), silent=True)
        marks = 0
        while marks < self.language.flush_marks:
            try:
                message = await asyncio.wait_for(self._inbox.get(), STRAGGLER_LIMIT_S)
            except TimeoutError:
                log.warning("a %s kernel kept back output", self.language.name)
                return
            content = message["content"]
            if token in content.get("text", "") or content.get("data", {}).get("text/plain") == token:
                marks += 1
                rest = content.get("text", "").replace(f"{token}\n", "")
                if rest:
                    yield {**message, "content": {**content, "text": rest}}
            elif message["msg_type"] == "execute_reply" and content.get("status") == "error":
                return
            elif message["msg_type"] not in ("status", "execute_input", "execute_reply", "error") or (
                message["parent_header"]["msg_id"] == request and message["msg_type"] == "error"
            ):
                yield message
        self._wanted -= {flush}

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        session = self._client.session
        while True:
            parts = await socket.recv_multipart()
            try:
                _, body = session.feed_identities(parts)
                message = session.deserialize(body)
            except (ValueError, TypeError, IndexError) as error:
                log.warning("a message of a %s kernel could not be read: %s", self.language.name, error)
                continue
            if message["parent_header"].get("msg_id") in self._wanted:
                self._inbox.put(message, sum(map(len, parts)))

    def _hold(self) -> None:
        """The reader of the output is slow: the kernel waits instead of filling memory."""
        self._process.send(signal.SIGSTOP)

    def _release(self) -> None:
        self._process.send(signal.SIGCONT)

    def interrupt(self) -> None:
        """As Ctrl-C: to the kernel and the programs it started; or as the kernel wants to be told."""
        self._release()
        if self.language.interrupt == "message":
            session = self._client.session
            session.send(self._client.control_channel.socket, session.msg("interrupt_request", {}))
        else:
            self._process.send_to_group(signal.SIGINT)

    def kill(self) -> None:
        """With the programs it started: a port that one of them holds is free for the next kernel."""
        self._process.send_to_group(signal.SIGKILL)

    async def stop(self) -> None:
        """Idempotent; nothing of the kernel is left."""
        self._dead = True
        for reader in self._readers:
            reader.cancel()
        self._inbox.close(self._death())
        self._client.stop_channels()
        await asyncio.to_thread(self._process.end)


@functools.cache
def _sockets() -> zmq.asyncio.Context:
    """Whatever a kernel sends is taken from it at once: a publisher drops what a full queue does not take."""
    context = zmq.asyncio.Context()
    context.setsockopt(zmq.RCVHWM, 0)
    return context


def explain(death: KernelDied, language: str) -> tuple[str, str]:
    """Name and text of the error that the cell ends with."""
    after = "Its variables are lost; the context has a new kernel."
    if death.out_of_memory:
        limit = memory.limit_mb()
        size = f" ({limit} MiB)" if limit else ""
        return "OutOfMemory", f"The {language} kernel was killed because the sandbox ran out of memory{size}. {after}"
    if death.status is not None and death.status < 0:
        return "KernelDied", f"The {language} kernel was ended by {_signal_name(-death.status)}. {after}"
    return "KernelDied", f"The {language} kernel ended with status {death.status}. {after}"


def _signal_name(number: int) -> str:
    names: Mapping[int, str] = {member.value: member.name for member in signal.Signals}
    return names.get(number, f"signal {number}")
