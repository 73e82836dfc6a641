"""Text that goes back to a model: bounded, and honest about what was left out."""

from __future__ import annotations

import codecs
import re
from collections import deque

MOST_SHOWN = 60_000  # characters of one answer; more would only drown a model
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
_OTHER_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """The beginning and the end, if it is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - most} characters left out …\n{text[-half:]}"


def plain(text: str) -> str:
    """Without what only a terminal understands; a line that was drawn over is shown as it was last."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] if "\r" in line.rstrip("\r") else line.rstrip("\r") for line in text.split("\n")]
    return _OTHER_CONTROLS.sub("", "\n".join(lines))


class Kept:
    """Output of a program as it comes: the first half and the last half of a limit, whatever its size."""

    def __init__(self, most: int = MOST_SHOWN) -> None:
        self._half = most // 2
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._headed = self._tailed = self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        room = self._half - self._headed
        if room > 0:
            self._head.append(text[:room])
            self._headed += len(self._head[-1])
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tailed += len(text)
        while self._tailed > self._half:
            first = self._tail.popleft()
            excess = min(len(first), self._tailed - self._half)
            self._dropped += excess
            self._tailed -= excess
            if excess < len(first):
                self._tail.appendleft(first[excess:])

    def text(self) -> str:
        self.take(b"", final=True)
        gap = f"\n… {self._dropped} characters left out …\n" if self._dropped else ""
        return f"{''.join(self._head)}{gap}{''.join(self._tail)}"
