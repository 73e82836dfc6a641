"""One command in a sandbox, as if it ran here: output as it comes, input when piped, its exit status, signals passed on."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from sandlot.cli.output import Failure

if TYPE_CHECKING:
    from e2b import Sandbox

CREATE_TIMEOUT_S = 120
CHUNK = 64 << 10


class Interrupted(BaseException):
    """Ctrl-C, or a request to end."""

    def __init__(self, number: int) -> None:
        self.number = number


class Execution:
    """Runs in a thread of its own: the SDK's calls cannot be interrupted, and the sandbox must go even if we are.

    `obtain` gets the sandbox (by creating it, or by connecting). The main thread only waits, for the end or a signal.
    """

    def __init__(self, obtain: Callable[[], Sandbox], argv: Sequence[str], **options: Any) -> None:
        self._obtain = obtain
        self._command = shlex.join(argv)
        self._options = options
        self._obtained = threading.Event()
        self._over = threading.Event()
        self._sandbox: Sandbox | None = None
        self._handle: Any = None
        self._stopping = False
        self._status = 1
        self._error: Exception | None = None

    def run(self, *, remove: bool) -> int:
        """Returns the command's exit status. With `remove`, the sandbox is gone afterwards, whatever happened."""
        previous = {
            number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        threading.Thread(target=self._work, daemon=True).start()
        try:
            while not self._over.wait(0.2):
                pass
        except Interrupted as interrupted:
            self._stopping = True
            self._obtained.wait(CREATE_TIMEOUT_S)
            return 128 + interrupted.number
        finally:
            for number in previous:
                signal.signal(number, signal.SIG_IGN)
            self._clean_up(remove)
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._error is not None:
            raise self._error
        return self._status

    def _clean_up(self, remove: bool) -> None:
        with contextlib.suppress(Exception):
            if remove and self._sandbox is not None:
                self._sandbox.kill()
            elif self._stopping and self._handle is not None:
                self._handle.kill()

    def _work(self) -> None:
        try:
            self._sandbox = self._obtain()
            self._obtained.set()
            if not self._stopping:
                self._execute(self._sandbox)
        except Exception as error:
            self._error = error
        finally:
            self._obtained.set()
            self._over.set()

    def _execute(self, sandbox: Sandbox) -> None:
        from e2b import CommandExitException

        piped = not sys.stdin.isatty()
        self._handle = handle = sandbox.commands.run(
            self._command, background=True, stdin=piped, timeout=0, retain_output=False, **self._options
        )
        if piped:
            threading.Thread(target=self._feed, args=(handle,), daemon=True).start()
        try:
            self._status = handle.wait(on_stdout=_writer(sys.stdout), on_stderr=_writer(sys.stderr)).exit_code
        except CommandExitException as ended:
            self._status = ended.exit_code if 0 <= ended.exit_code < 256 else 1

    def _feed(self, handle: Any) -> None:
        """Pass our input on until it ends. The command may end first, and then nobody wants the rest."""
        with contextlib.suppress(Exception), selectors.DefaultSelector() as waiting:
            with contextlib.suppress(PermissionError):  # a regular file cannot be waited for, and need not be
                waiting.register(0, selectors.EVENT_READ)
            while not self._over.is_set():
                if waiting.get_map() and not waiting.select(0.2):
                    continue
                data = os.read(0, CHUNK)
                if not data:
                    handle.close_stdin()
                    return
                handle.send_stdin(data)


def _interrupt(number: int, _: object) -> None:
    raise Interrupted(number)


def _writer(stream: IO[str]) -> Callable[[str], None]:
    def write(text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            stream.write(text)
            stream.flush()

    return write


def parse_env(pairs: Sequence[str]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise Failure(f"--env takes NAME=VALUE, and {pair!r} is not that", status=2)
        values[name] = value
    return values
