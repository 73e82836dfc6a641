"""The methods of E2B's process service, in terms of `processes`."""

from __future__ import annotations

import os

from envd.connect import ConnectError, Method
from envd.spawning import Launch
from envd.state import PATH, BadPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from envd.connect import Call
    from envd.messages import Message
    from envd.processes import Process, Processes
    from envd.state import State
    from envd.users import User

_KILL, _TERMINATE = 9, 15
_KILL_PATIENCE_S = 1.0


class ProcessService:
    """Start, list, follow, feed and signal processes."""

    def __init__(self, processes: Processes, state: State) -> None:
        self._processes = processes
        self._state = state

    def methods(self) -> dict[str, Method]:
        service = "/process.Process/"
        return {
            service + "List": Method("Empty", "ListResponse", unary=self.list),
            service + "Start": Method("StartRequest", "StartResponse", server_stream=self.start),
            service + "Connect": Method("ConnectRequest", "ConnectResponse", server_stream=self.connect),
            service + "SendInput": Method("SendInputRequest", "Empty", unary=self.send_input),
            service + "StreamInput": Method("StreamInputRequest", "Empty", client_stream=self.stream_input),
            service + "SendSignal": Method("SendSignalRequest", "Empty", unary=self.send_signal),
            service + "CloseStdin": Method("CloseStdinRequest", "Empty", unary=self.close_stdin),
            service + "Update": Method("UpdateRequest", "Empty", unary=self.update),
        }

    async def list(self, call: Call, request: Message) -> Message:
        return {"processes": [{"config": each.config, "pid": each.pid, "tag": each.tag} for each in self._processes]}

    def start(self, call: Call, request: Message) -> AsyncIterator[Message]:
        process = self._spawn(call, request)
        if call.timeout is not None:
            process.end_after(call.timeout)
        return _follow(process, call.keepalive())

    def connect(self, call: Call, request: Message) -> AsyncIterator[Message]:
        selector = request.get("process", {})
        try:
            process = self._processes.select(selector)
        except ConnectError as error:
            ended = self._processes.recently_ended(selector) if error.code == "not_found" else None
            if ended is None:
                raise
            return _retell(*ended)
        return _follow(process, call.keepalive())

    async def send_input(self, call: Call, request: Message) -> Message:
        await _feed(self._processes.select(request.get("process", {})), request.get("input", {}))
        return {}

    async def stream_input(self, call: Call, messages: AsyncIterator[Message]) -> Message:
        process = None
        async for message in messages:
            if "start" in message:
                process = self._processes.select(message["start"].get("process", {}))
            elif "data" in message:
                if process is None:
                    raise ConnectError("invalid_argument", "the first message must name the process")
                await _feed(process, message["data"].get("input", {}))
            elif "keepalive" not in message:
                raise ConnectError("unimplemented", "a message of the stream is neither start, data nor keepalive")
        return {}

    async def send_signal(self, call: Call, request: Message) -> Message:
        process = self._processes.select(request.get("process", {}))
        number = request.get("signal", 0)
        if number not in (_KILL, _TERMINATE):
            raise ConnectError("unimplemented", f"invalid signal: {number}: use SIGNAL_SIGTERM or SIGNAL_SIGKILL")
        process.signal(number)
        if number == _KILL:  # who asked for it may look at once
            await process.gone(_KILL_PATIENCE_S)
        return {}

    async def close_stdin(self, call: Call, request: Message) -> Message:
        await self._processes.select(request.get("process", {})).close_stdin()
        return {}

    async def update(self, call: Call, request: Message) -> Message:
        process = self._processes.select(request.get("process", {}))
        if "pty" in request:
            size = request["pty"].get("size", {})
            process.resize(size.get("cols", 0), size.get("rows", 0))
        return {}

    def _spawn(self, call: Call, request: Message) -> Process:
        config, user = request.get("process", {}), call.user()
        launch = Launch(
            _arguments(config), self._environment(config, user), self._directory(config.get("cwd", ""), user), user
        )
        tag = request.get("tag")
        try:
            if "pty" in request:
                size = request["pty"].get("size", {})
                return self._processes.start_on_terminal(launch, config, tag, size.get("cols", 0), size.get("rows", 0))
            return self._processes.start(launch, config, tag, request.get("stdin", True))
        except OSError as error:
            message = f"error starting process '{config.get('cmd')}': {error.strerror}: {error.filename}"
            raise ConnectError("invalid_argument", message) from error

    def _environment(self, config: Message, user: User) -> dict[str, str]:
        given = config.get("envs", {})
        for name, value in given.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ConnectError("invalid_argument", f"the environment variable {name!r} cannot be set")
        return {
            "PATH": PATH,
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
            **self._state.environment(),
            **given,
        }

    def _directory(self, path: str, user: User) -> str:
        try:
            directory = self._state.resolve(path, user) or user.home
        except BadPath as error:
            raise ConnectError("invalid_argument", str(error)) from error
        if not os.path.exists(directory):
            if directory == user.home and not path:
                return "/"  # as login does for a user whose home was never made
            raise ConnectError("invalid_argument", f"cwd '{directory}' does not exist")
        return directory


def _arguments(config: Message) -> list[str]:
    arguments = [config.get("cmd", ""), *config.get("args", ())]
    if not arguments[0]:
        raise ConnectError("invalid_argument", "the command is empty")
    if any("\0" in argument for argument in arguments):
        raise ConnectError("invalid_argument", "the command contains a NUL byte")
    return arguments


async def _retell(pid: int, end: Message) -> AsyncIterator[Message]:
    yield {"event": {"start": {"pid": pid}}}
    yield {"event": {"end": end}}


async def _follow(process: Process, keepalive: float) -> AsyncIterator[Message]:
    listener = process.listen()
    try:
        yield {"event": {"start": {"pid": process.pid}}}
        while True:
            event = await listener.next(keepalive)
            yield event if event is not None else {"event": {"keepalive": {}}}
            if event is not None and "end" in event["event"]:
                return
    finally:
        listener.close()


async def _feed(process: Process, given: Message) -> None:
    if "pty" in given:
        await process.write(given["pty"], to_terminal=True)
    elif "stdin" in given:
        await process.write(given["stdin"], to_terminal=False)
    else:
        raise ConnectError("unimplemented", "the input is neither stdin nor pty")
