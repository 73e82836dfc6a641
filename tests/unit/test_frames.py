"""Frames of WebSockets that pass by: every byte goes on, cut anywhere, and where a frame ends is known."""

from __future__ import annotations

import itertools
import random

from sandlot.engine.node.proxy.frames import CLOSE, MOST_AT_ONCE, PING, PONG, FrameTracker, close, control
from sandlot.engine.node.proxy.pipe import READ_LEAST, READ_MOST, share


def frame(opcode: int, content: bytes, mask: bytes = b"") -> bytes:
    length = len(content)
    said = (
        bytes([length])
        if length < 126
        else b"\x7e" + length.to_bytes(2)
        if length < 65536
        else b"\x7f" + length.to_bytes(8)
    )
    said = bytes([said[0] | (0x80 if mask else 0)]) + said[1:]
    masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(content)) if mask else content
    return bytes([0x80 | opcode]) + said + mask + masked


def pieces(stream: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted({0, len(stream), *(chance.randrange(len(stream)) for _ in range(chance.randrange(40)))})
    return [stream[start:end] for start, end in itertools.pairwise(cuts)]


def test_everything_but_our_own_pongs_passes_however_it_is_cut() -> None:
    chance = random.Random(7)
    own = frame(PONG, b"ours", b"\x01\x02\x03\x04")
    for _ in range(200):
        wanted, sent = b"", b""
        for _ in range(chance.randrange(1, 12)):
            size = chance.choice([0, 1, 125, 126, 127, 300, 70_000])
            mask = chance.choice([b"", chance.randbytes(4)])
            each = chance.choice(
                [frame(chance.randrange(3), chance.randbytes(size), mask), frame(PING, b"x", mask), own]
            )
            each = frame(PONG, b"theirs", mask) if chance.random() < 0.1 else each
            sent += each
            wanted += b"" if each == own else each
        frames = FrameTracker(is_own=lambda content: content == b"ours")
        assert b"".join(map(frames.feed, pieces(sent, chance))) == wanted
        assert frames.is_between and not frames.said_goodbye


def test_inside_a_frame_nothing_can_be_put_in() -> None:
    frames = FrameTracker()
    stream = frame(2, bytes(1000))
    for number, byte in enumerate(stream, 1):
        assert frames.feed(bytes([byte])) == bytes([byte])
        assert frames.is_between == (number == len(stream))


def test_a_goodbye_is_noticed() -> None:
    frames = FrameTracker()
    assert frames.feed(frame(1, b"x") + close(1000, "bye")[:3]) and not frames.said_goodbye
    frames.feed(close(1000, "bye")[3:])
    assert frames.said_goodbye
    assert control(CLOSE, b"")[:2] == b"\x88\0"


def test_a_flood_of_tiny_frames_is_passed_on_unseen() -> None:
    """Each would cost the server work, and a guest can send 32,000 of them at once."""
    frames = FrameTracker()
    flood = frame(2, b"") * (MOST_AT_ONCE + 100)
    assert frames.feed(flood) == flood
    assert frames.was_lost and not frames.is_between
    assert frames.feed(b"\xff" * 10) == b"\xff" * 10


def test_a_length_beyond_all_memory_takes_none() -> None:
    frames = FrameTracker()
    head = b"\x82\x7f" + (1 << 62).to_bytes(8)
    assert frames.feed(head + b"x" * 100) == head + b"x" * 100
    assert not frames.is_between


def test_a_budget_is_shared_by_all_websockets_of_a_sandbox() -> None:
    assert share(16 << 20, 1) == READ_MOST
    assert share(16 << 20, 1000) == 8388
    assert 2 * 1000 * share(16 << 20, 1000) <= 16 << 20
    assert share(0, 10) == READ_LEAST
