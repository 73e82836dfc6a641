"""Follows a program in a sandbox that writes into a file: by offset, line by line, until it has ended. Any process may go on with it."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from sandlot.platform.agents.turns import Turn, TurnFiles, state_line, turn_files
from sandlot.platform.core.errors import Unavailable
from sandlot.platform.tasks.boxes import TIMED_OUT, TaskBox

PAGE = 384 << 10  # bytes of output that are asked for at once
TICK_S, TICKS = 0.2, 40  # how often the file is looked at inside, and for how long by one command
MAX_LINE = 1 << 20
CUT = " … (the line was longer)"


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of the output. `state` is running, ended, gone or absent; with `ended`, the file is complete."""

    state: str
    exit_code: int | None
    content: bytes

    @property
    def is_over(self) -> bool:
        return self.state != "running" and len(self.content) < PAGE


async def read_page(box: TaskBox, turn: Turn, offset: int) -> Page:
    """What was written after `offset`; waits a little for it. Raises `SandboxGone`, `Unavailable`."""
    files = turn_files(turn)
    ran = await box.run(_look(files, state_line(turn), offset), timeout_s=TICK_S * TICKS + 60)
    head, _, rest = ran.stdout.partition("\n")
    words = head.split()
    if not words or words[0] not in ("running", "ended", "gone", "absent") or ran.exit_code == TIMED_OUT:
        raise Unavailable(f"the sandbox does not tell what its agent wrote: {ran.words[-200:]}")
    try:
        content = base64.b64decode(rest.strip())
    except (binascii.Error, ValueError):
        raise Unavailable("the sandbox does not tell what its agent wrote: this is no base64") from None
    return Page(words[0], _number(words[1]) if words[0] == "ended" and len(words) > 1 else None, content)


def _look(files: TurnFiles, state: str, offset: int) -> str:
    """The end is looked for before the output is read: what has ended writes no more."""
    output, exit_code = shlex.quote(files.output), shlex.quote(files.exit_code)
    return f"""
i=0
while [ ! -e {exit_code} ] && [ $i -lt {TICKS} ]; do
  size=$(stat -c %s {output} 2>/dev/null || echo 0)
  [ "$size" -le {offset} ] || break
  i=$((i+1)); sleep {TICK_S}
done
if [ -e {exit_code} ] || [ $i -ge {TICKS} ]; then {state}; else echo running; fi
tail -c +{offset + 1} {output} 2>/dev/null | head -c {PAGE} | base64 -w0
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
