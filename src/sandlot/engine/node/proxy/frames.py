"""Follows the frames of a WebSocket that passes by, and holds none: where one ends, and whether it was the goodbye."""

from __future__ import annotations

from collections.abc import Callable

CLOSE, PING, PONG = 8, 9, 10
FIN, CONTROL, MASKED = 0x80, 0x08, 0x80
# A guest may send frames of two bytes, and each costs the server some work. Who sends so many at once is passed on unseen.
MOST_AT_ONCE = 512
_LENGTHS = {126: 2, 127: 8}  # in how many bytes a length is written that does not fit into the first


class FrameTracker:
    """One direction. Pongs that `is_own` knows by their content are not passed on; all else is, at once."""

    __slots__ = ("_held", "_is_own", "_left", "said_goodbye", "was_lost")

    def __init__(self, is_own: Callable[[bytes], bool] | None = None) -> None:
        self._is_own = is_own
        self._held = (
            bytearray()
        )  # the head of a frame, or a whole one of those that are not data; never more than 131 bytes
        self._left = 0
        self.said_goodbye = False
        self.was_lost = False

    @property
    def is_between(self) -> bool:
        """Whether a frame could be put in here."""
        return not self._left and not self._held and not self.was_lost

    def feed(self, data: bytes) -> bytes:
        """What of this is to be passed on."""
        if self.was_lost:
            return data
        if len(data) <= self._left:
            self._left -= len(data)
            return data
        passed, at, seen = [], 0, 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                passed.append(piece)
            elif seen == MOST_AT_ONCE:
                self.was_lost = True
                passed.append(data[at:])
                break
            else:
                piece = data[at : at + _size(self._held) - len(self._held)]
                self._held += piece
                may_be_own = self._is_own is not None and self._held[0] & 0x0F == PONG
                if not may_be_own:
                    passed.append(piece)
                if len(self._held) == _size(self._held):
                    seen += 1
                    frame = self._taken()
                    passed.append(frame if may_be_own else b"")
            at += len(piece)
        return b"".join(passed)

    def _taken(self) -> bytes:
        """The head, or the whole of what is not data. Empty if it is our own."""
        frame = bytes(self._held)
        self._held.clear()
        opcode, length = frame[0] & 0x0F, frame[1] & 0x7F
        if _is_short_control(frame):
            self.said_goodbye = self.said_goodbye or opcode == CLOSE
            is_own = self._is_own is not None and opcode == PONG and self._is_own(_content(frame))
            return b"" if is_own else frame
        self._left = int.from_bytes(frame[2 : 2 + _LENGTHS[length]]) if length in _LENGTHS else length
        return frame


def control(opcode: int, content: bytes) -> bytes:
    """A frame of a server's."""
    return bytes([FIN | opcode, len(content)]) + content


def close(code: int, reason: str) -> bytes:
    return control(CLOSE, code.to_bytes(2) + reason.encode()[:120].decode(errors="ignore").encode())


def _size(held: bytes | bytearray) -> int:
    """How much there must be to know what the frame is; a short frame that is not data is taken whole."""
    if len(held) < 2:
        return 2
    head = 2 + _LENGTHS.get(held[1] & 0x7F, 0) + (4 if held[1] & MASKED else 0)
    return head + (held[1] & 0x7F if _is_short_control(held) else 0)


def _is_short_control(frame: bytes | bytearray) -> bool:
    """They have to be short. One that is not is for the other end to complain about."""
    return bool(frame[0] & CONTROL) and frame[1] & 0x7F not in _LENGTHS


def _content(frame: bytes) -> bytes:
    if not frame[1] & MASKED:
        return frame[2:]
    mask = frame[2:6]
    return bytes(byte ^ mask[number % 4] for number, byte in enumerate(frame[6:]))
