"""Owns the processes started through the daemon: their pipes, who listens to them, how they end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque

from envd import groups, logs, spawning
from envd.connect import ConnectError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envd.messages import Message

PIPE_CHUNK = 32 * 1024
TERMINAL_CHUNK = 16 * 1024
ENOUGH = 256 * 1024  # a listener this far behind is not given more if it is the only one
TOO_MUCH = 8 * 1024 * 1024  # a listener this far behind while others keep up is let go
RETENTION_SECONDS = 30.0

_SIGNALS = {
    1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted",
    7: "bus error", 8: "floating point exception", 9: "killed", 10: "user defined signal 1",
    11: "segmentation fault", 12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock", 15: "terminated",
}  # fmt: skip


class Listener:
    """One stream's view of a process: events it has not sent yet."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._events: deque[tuple[int, Message]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._dropped = False
        self.behind = 0  # bytes of output waiting

    def put(self, event: Message, size: int) -> None:
        if self._dropped:
            return
        self.behind += size
        if self.behind > TOO_MUCH:
            self._dropped = True
            self._events.clear()
        else:
            self._events.append((size, event))
        self._wake()

    async def next(self, patience: float) -> Message | None:
        """The next event; None when there was none for `patience` seconds."""
        if not self._events and not self._dropped:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(patience, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        if self._dropped:
            raise ConnectError("resource_exhausted", "the output was not read fast enough; connect again to go on")
        if not self._events:
            return None
        size, event = self._events.popleft()
        self.behind -= size
        self._process.regulate()
        return event

    def close(self) -> None:
        self._process.listeners.discard(self)
        self._process.regulate()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Process:
    """A started process, until it has ended and all its output has been read."""

    def __init__(self, table: Processes, pid: int, config: Message, tag: str | None) -> None:
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._stdin: int | None = None
        self._terminal: int | None = None
        self._outputs: dict[int, str] = {}
        self._reading = False
        self._status: int | None = None
        self._gone = asyncio.Event()
        self._cut = False  # its output is no longer waited for: it was told to die
        self._input = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self.pid = pid
        self.config = config
        self.tag = tag
        self.listeners: set[Listener] = set()

    def attach(self, *, stdin: int | None = None, terminal: int | None = None, outputs: dict[int, str]) -> None:
        self._stdin, self._terminal, self._outputs = stdin, terminal, outputs
        self.regulate()

    def listen(self) -> Listener:
        listener = Listener(self)
        self.listeners.add(listener)
        self.regulate()
        return listener

    def end_after(self, seconds: float) -> None:
        # A moment later than the stream that asked for it, so that the stream ends with the deadline, not with the kill.
        self._timer = self._loop.call_later(seconds + 0.01, self.signal, signal.SIGKILL)

    # output

    def regulate(self) -> None:
        """Read output only while somebody can take it; with nobody listening it is read and dropped."""
        wanted = not self.listeners or any(listener.behind < ENOUGH for listener in self.listeners)
        if wanted == self._reading:
            return
        self._reading = wanted
        for descriptor in self._outputs:
            if wanted:
                self._loop.add_reader(descriptor, self._readable, descriptor)
            else:
                self._loop.remove_reader(descriptor)

    def _readable(self, descriptor: int) -> bool:
        """Take what is there; false when there is nothing now."""
        kind = self._outputs[descriptor]
        try:
            data = os.read(descriptor, TERMINAL_CHUNK if kind == "pty" else PIPE_CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose last user is gone answers EIO
            data = b""
        if not data:
            self._close_output(descriptor)
            self._finish()
            return False
        if self.listeners:
            event = {"event": {"data": {kind: data}}}
            for listener in tuple(self.listeners):
                listener.put(event, len(data))
            self.regulate()
        return True

    def _close_output(self, descriptor: int) -> None:
        del self._outputs[descriptor]
        self._loop.remove_reader(descriptor)
        if descriptor == self._terminal:
            self._loop.remove_writer(descriptor)
            self._terminal = None
        os.close(descriptor)

    # the end

    def exited(self, status: int) -> None:
        self._status = status
        self._gone.set()
        if self._timer is not None and not self._outputs:
            self._timer.cancel()
        self._drop_outputs_if_cut()
        self._finish()

    def signal(self, number: int) -> None:
        """Signal the process; SIGKILL goes to its whole group, because a killed shell cannot pass it on."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._cut = True
        try:
            if number == signal.SIGKILL:
                groups.end(self.pid)
            elif self._status is not None:
                os.killpg(self.pid, number)  # the group's id cannot be reused while a member lives
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass
        self._drop_outputs_if_cut()
        self._finish()

    async def gone(self, patience_s: float) -> None:
        """Wait until its number stands for nothing any more, but no longer than this."""
        try:
            async with asyncio.timeout(patience_s):
                await self._gone.wait()
        except TimeoutError:
            pass  # it sits in the kernel; the signal waits for it there

    def _drop_outputs_if_cut(self) -> None:
        if self._status is None or not self._cut:
            return
        for descriptor in tuple(self._outputs):
            for _ in range(8):  # no more than a pipe holds
                if not self._readable(descriptor):
                    break
            if descriptor in self._outputs:
                self._close_output(descriptor)

    def _finish(self) -> None:
        if self._status is None or self._outputs or self._table.find(self.pid) is not self:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._release_stdin()
        end = end_event(self._status)
        self._table.ended(self, end)
        for listener in tuple(self.listeners):
            listener.put({"event": {"end": end}}, 0)

    # input

    async def write(self, data: bytes, *, to_terminal: bool) -> None:
        """Write all of `data`, waiting while the process does not read. Raises `ConnectError`."""
        if to_terminal != (self._terminal is not None):
            raise ConnectError("internal", _WRONG_INPUT[to_terminal])
        async with self._input:
            view = memoryview(data)
            while view:
                descriptor = self._terminal if to_terminal else self._stdin
                if descriptor is None:
                    raise ConnectError("internal", "error writing to stdin: stdin not enabled or closed")
                try:
                    view = view[os.write(descriptor, view) :]
                except BlockingIOError:
                    await self._writable(descriptor)
                except OSError as error:
                    raise ConnectError(
                        "internal", f"error writing to process '{self.pid}': {error.strerror}"
                    ) from error

    async def _writable(self, descriptor: int) -> None:
        ready = asyncio.Event()
        self._loop.add_writer(descriptor, ready.set)
        try:
            async with asyncio.timeout(
                1.0
            ):  # the end of a process closes the descriptor under us: look again now and then
                await ready.wait()
        except TimeoutError:
            pass
        finally:
            if descriptor in (self._stdin, self._terminal):
                self._loop.remove_writer(descriptor)

    async def close_stdin(self) -> None:
        if self._terminal is not None:
            raise ConnectError("unknown", "cannot close stdin for PTY process: send Ctrl+D (0x04) instead")
        async with self._input:
            self._release_stdin()

    def _release_stdin(self) -> None:
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def resize(self, columns: int, rows: int) -> None:
        if self._terminal is None:
            raise ConnectError("internal", "error resizing tty: tty not assigned to process")
        spawning.resize(self._terminal, columns, rows)
        spawning.announce_size(self._terminal, self.pid)


_WRONG_INPUT = {
    True: "error writing to tty: tty not assigned to process: input should be written to the stdin, not the tty",
    False: "error writing to stdin: tty assigned to process: input should be written to the pty, not the stdin",
}


def end_event(status: int) -> Message:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        text = f"exit status {code}"
    else:
        core = " (core dumped)" if os.WCOREDUMP(status) else ""
        text = f"signal: {_SIGNALS.get(-code, f'signal {-code}')}{core}"
    end: Message = {"exitCode": max(code, -1), "exited": code >= 0, "status": text}
    if code != 0:
        end["error"] = text
    return end


class Processes:
    """All live processes, and for a while how the ended ones ended. Also reaps orphans: the daemon may be process 1."""

    def __init__(self) -> None:
        self._live: dict[int, Process] = {}
        self._watched: dict[int, Callable[[int], None]] = {}  # children that are no processes of the API
        self._ended: dict[int, tuple[str | None, Message]] = {}
        self._expose = spawning.protect_from_oom()

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._live.values()))

    def start(self, launch: spawning.Launch, config: Message, tag: str | None, stdin: bool) -> Process:
        """Raises OSError."""
        pid, stdin_end, stdout, stderr = spawning.spawn_piped(launch, stdin)
        process = self._register(pid, config, tag, launch)
        process.attach(stdin=stdin_end, outputs={stdout: "stdout", stderr: "stderr"})
        return process

    def start_on_terminal(
        self, launch: spawning.Launch, config: Message, tag: str | None, columns: int, rows: int
    ) -> Process:
        """Raises OSError."""
        pid, terminal = spawning.spawn_on_terminal(launch, columns, rows)
        process = self._register(pid, config, tag, launch)
        process.attach(terminal=terminal, outputs={terminal: "pty"})
        return process

    def _register(self, pid: int, config: Message, tag: str | None, launch: spawning.Launch) -> Process:
        if self._expose:
            spawning.expose_to_oom(pid)
        self._ended = {old: kept for old, kept in self._ended.items() if old != pid and (tag is None or kept[0] != tag)}
        process = self._live[pid] = Process(self, pid, config, tag)
        command = " ".join([config.get("cmd", ""), *config.get("args", ())])
        logs.log("info", "process started", pid=pid, user=launch.user.name, cmd=command)
        return process

    def find(self, pid: int) -> Process | None:
        return self._live.get(pid)

    def select(self, selector: Message) -> Process:
        """Raises `ConnectError` if no live process matches."""
        if "pid" in selector:
            process = self._live.get(selector["pid"])
        elif "tag" in selector:
            process = next((each for each in self._live.values() if each.tag == selector["tag"]), None)
        else:
            raise ConnectError("invalid_argument", "the process must be named by pid or tag")
        if process is None:
            raise ConnectError("not_found", f"process with {_words(selector)} not found")
        return process

    def recently_ended(self, selector: Message) -> tuple[int, Message] | None:
        for pid, (tag, end) in self._ended.items():
            if selector.get("pid", pid) == pid and selector.get("tag", tag) == tag:
                return pid, end
        return None

    def ended(self, process: Process, end: Message) -> None:
        del self._live[process.pid]
        kept = self._ended[process.pid] = (process.tag, end)
        asyncio.get_running_loop().call_later(RETENTION_SECONDS, self._forget, process.pid, kept)
        logs.log("info", "process ended", pid=process.pid, exit_code=end["exitCode"], status=end["status"])

    def _forget(self, pid: int, kept: tuple[str | None, Message]) -> None:
        if self._ended.get(pid) is kept:
            del self._ended[pid]

    def reap(self) -> None:
        """Collect every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._live.get(pid)
            if process is not None:
                process.exited(status)
            elif pid in self._watched:
                self._watched.pop(pid)(status)

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Tell `ended` the wait status of a child that was started elsewhere. Call before the event loop runs again."""
        self._watched[pid] = ended

    def count_all(self) -> int:
        """Processes besides this daemon, whoever started them: one that left its parent behind is somebody's work, too."""
        if os.getpid() != 1:  # then most processes that can be seen are no business of this daemon's
            return len(self._live) + len(self._watched)
        return sum(name.isdecimal() for name in os.listdir("/proc")) - 1

    def end_all(self) -> None:
        for process in self:
            process.signal(signal.SIGKILL)


def _words(selector: Message) -> str:
    return f"pid {selector['pid']}" if "pid" in selector else f"tag {selector['tag']!r}"
