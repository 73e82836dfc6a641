"""Follows a program in a sandbox that writes into a file: by offset, line by line, until it has ended. Any process may go on with it."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from sandlot.platform.agents.turns import Turn, TurnFiles, TurnScript, state_line, turn_files
from sandlot.platform.core.errors import Unavailable
from sandlot.platform.tasks.boxes import TIMED_OUT, TaskBox

PAGE = 384 << 10  # bytes of output that are asked for at once
TICK_S, TICKS = 0.2, 40  # how often the file is looked at inside, and for how long by one command
QUICK_S, QUICK_TICKS = 0.02, 10  # at first more often: most checks are short
INLINE = 48 << 10  # bytes of files that one command may carry
ERRORS = 8000
MAX_LINE = 1 << 20
CUT = " … (the line was longer)"


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of the output. `state` is running, ended, gone or absent; with `ended`, the file is complete."""

    state: str
    exit_code: int | None
    content: bytes
    errors: bytes = b""  # the end of them, once it is over

    @property
    def is_over(self) -> bool:
        return self.state != "running" and len(self.content) < PAGE


async def start_page(box: TaskBox, turn: Turn, script: TurnScript) -> Page:
    """Start the turn, and read what it writes at first, in one command. A turn that was started goes on as it is.

    Raises `SandboxGone`, `Unavailable`.
    """
    inline = {path: text for path, content in script.files.items() if (text := _inline(path, content)) is not None}
    if sum(map(len, inline.values())) > INLINE:
        inline = {}
    for path, content in script.files.items():
        if path not in inline:
            await box.write(path, content)
    folders = sorted({path.rpartition("/")[0] for path in inline})
    written = [f"mkdir -p {' '.join(map(shlex.quote, folders))} || exit 1"] if folders else []
    written += [f"printf %s {shlex.quote(text)} >{shlex.quote(path)} || exit 1" for path, text in inline.items()]
    started = shlex.quote(f"{turn_files(turn).folder}/started")
    first = "\n".join([f"if [ ! -e {started} ]; then", *written, f"{script.start} || exit 1", "fi"])
    return await read_page(box, turn, 0, first=first)


def _inline(path: str, content: bytes) -> str | None:
    """Its text, if it may be in a command, which other programs of the sandbox see."""
    if path.endswith("/environment") and content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


async def read_page(box: TaskBox, turn: Turn, offset: int, *, first: str = "") -> Page:
    """What was written after `offset`; waits a little for it. `first` is run before. Raises `SandboxGone`, `Unavailable`."""
    files = turn_files(turn)
    command = f"{first}\n{_look(files, state_line(turn), offset, bool(first))}"
    ran = await box.run(command, timeout_s=TICK_S * TICKS + 60)
    head, _, rest = ran.stdout.partition("\n")
    words = head.split()
    if not words and first and not ran.is_ok:
        raise Unavailable(f"it could not be started: {ran.words[-500:]}")
    if not words or words[0] not in ("running", "ended", "gone", "absent") or ran.exit_code == TIMED_OUT:
        raise Unavailable(f"the sandbox does not tell what its agent wrote: {ran.words[-200:]}")
    output, _, errors = rest.partition("\n")
    exit_code = _number(words[1]) if words[0] == "ended" and len(words) > 1 else None
    return Page(words[0], exit_code, _decoded(output), _decoded(errors))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip())
    except (binascii.Error, ValueError):
        raise Unavailable("the sandbox does not tell what its agent wrote: this is no base64") from None


def _look(files: TurnFiles, state: str, offset: int, is_first: bool) -> str:
    """The end is looked for before the output is read: what has ended writes no more. At first only the end is waited for."""
    output, errors, exit_code, wake = map(shlex.quote, (files.output, files.errors, files.exit_code, files.wake))
    read = f"head -c {PAGE} {output}" if offset == 0 else f"tail -c +{offset + 1} {output} 2>/dev/null | head -c {PAGE}"
    return f"""
i=0 pause={QUICK_S} first={QUICK_TICKS if is_first else 0}
if [ -n "${{BASH_VERSION-}}" ] && [ -p {wake} ]; then
  exec 9<>{wake}
  rest() {{ read -r -t $pause -n 1 -u 9; }}
else
  rest() {{ sleep $pause; }}
fi
while [ ! -s {exit_code} ] && [ $i -lt {TICKS} ]; do
  [ $i -lt $first ] || [ "$(stat -c %s {output} 2>/dev/null || echo 0)" -le {offset} ] || break
  i=$((i+1)); [ $i -lt {QUICK_TICKS} ] || pause={TICK_S}
  rest
done
if [ -s {exit_code} ]; then read -r code <{exit_code}; echo "ended $code"
elif [ $i -ge {TICKS} ]; then {state}
else echo running; fi
{read} 2>/dev/null | base64 -w0
[ ! -s {errors} ] || [ ! -s {exit_code} ] || {{ echo; tail -c {ERRORS} {errors} | base64 -w0; }}
"""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 6 else None


class Lines:
    """Whole lines out of pieces, each with the offset after it. A line that is too long is cut; its rest is dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._taken = 0  # bytes that went in
        self._is_dropping = False

    @property
    def taken(self) -> int:
        return self._taken

    def feed(self, piece: bytes) -> Iterator[tuple[str, int]]:
        begin = self._taken - len(self._rest)
        self._taken += len(piece)
        self._rest += piece
        while (end := self._rest.find(b"\n")) >= 0:
            line, start = bytes(self._rest[:end]), begin
            del self._rest[: end + 1]
            begin += end + 1
            if self._is_dropping:
                self._is_dropping = False
            elif len(line) > MAX_LINE:
                yield _text(line) + CUT, start + MAX_LINE
            else:
                yield _text(line), begin
        if len(self._rest) > MAX_LINE:
            if not self._is_dropping:
                yield _text(bytes(self._rest)) + CUT, begin + MAX_LINE
            self._is_dropping = True
            self._rest.clear()

    def last(self) -> Iterator[tuple[str, int]]:
        """What has no end of line, once nothing more will come."""
        if self._rest and not self._is_dropping:
            yield _text(bytes(self._rest)), self._taken
        self._rest.clear()


def _text(line: bytes) -> str:
    return line[:MAX_LINE].decode(errors="replace").rstrip("\r")
