"""The little of DNS messages that relays need: read a question, refuse it, ask one, read IPv4 answers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

HEADER = struct.Struct("!6H")
MAX_MESSAGE = 65535
MAX_QUERY = 4096
TYPE_A, CLASS_IN = 1, 1
SERVFAIL, REFUSED = 2, 5
_QR, _TC, _RD, _RA = 0x8000, 0x0200, 0x0100, 0x0080
_OPCODE = 0x7800


class Malformed(ValueError):
    """Bytes that are not the message they should be."""


@dataclass(frozen=True, slots=True)
class Question:
    id: int
    flags: int
    name: str  # lower case, no final dot; bytes that do not belong in a host name are escaped
    kind: int
    raw: bytes  # the question section as it came


def read_query(message: bytes) -> Question:
    """The question of a plain query. Raises `Malformed` for all else: answers, updates, several questions."""
    question = _read_question(message)
    if question.flags & (_QR | _OPCODE) or len(message) > MAX_QUERY:
        raise Malformed("not a plain query")
    return question


def answers(message: bytes, asked: Question, id: int) -> bool:
    """Whether a message answers what was asked, under the id it was asked with."""
    try:
        got = _read_question(message)
    except Malformed:
        return False
    return got.id == id and bool(got.flags & _QR) and (got.name, got.kind) == (asked.name, asked.kind)


def with_id(message: bytes, id: int) -> bytes:
    return id.to_bytes(2) + message[2:]


def refusal(question: Question, code: int) -> bytes:
    flags = _QR | (question.flags & _RD) | _RA | code
    return HEADER.pack(question.id, flags, 1, 0, 0, 0) + question.raw


def query(name: str, id: int) -> bytes:
    """A query for a name's IPv4 addresses. Raises `Malformed` for what is not a host name."""
    try:
        labels = [label.encode("ascii") for label in name.removesuffix(".").split(".")]
    except UnicodeEncodeError as error:
        raise Malformed("not an ASCII name") from error
    if not all(1 <= len(label) <= 63 for label in labels) or sum(len(label) + 1 for label in labels) > 254:
        raise Malformed("not a host name")
    encoded = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return HEADER.pack(id, _RD, 1, 0, 0, 0) + encoded + struct.pack("!2H", TYPE_A, CLASS_IN)


def is_truncated(message: bytes) -> bool:
    return bool(int.from_bytes(message[2:4]) & _TC)


def addresses(message: bytes) -> list[IPv4Address]:
    """All IPv4 addresses in the answer section, whatever names lead to them."""
    if len(message) < HEADER.size:
        raise Malformed("too short")
    _, _, questions, count, _, _ = HEADER.unpack_from(message)
    position = HEADER.size
    for _ in range(questions):
        position = _skip_name(message, position) + 4
    found = []
    for _ in range(count):
        position = _skip_name(message, position)
        if position + 10 > len(message):
            raise Malformed("an answer is cut off")
        kind, klass, _, length = struct.unpack_from("!2HIH", message, position)
        position += 10
        data = message[position : position + length]
        position += length
        if (kind, klass, len(data)) == (TYPE_A, CLASS_IN, 4):
            found.append(IPv4Address(data))
    return found


def _read_question(message: bytes) -> Question:
    if len(message) < HEADER.size:
        raise Malformed("too short")
    id, flags, questions, *_ = HEADER.unpack_from(message)
    if questions != 1:
        raise Malformed("not exactly one question")
    labels, position = [], HEADER.size
    while True:
        length = _byte(message, position)
        if length > 63:
            raise Malformed("a compressed name in a question")
        if length == 0:
            break
        labels.append(message[position + 1 : position + 1 + length])
        position += 1 + length
        if position - HEADER.size > 254:
            raise Malformed("a name that is too long")
    end = position + 5
    if end > len(message):
        raise Malformed("the question is cut off")
    kind = int.from_bytes(message[position + 1 : position + 3])
    return Question(id, flags, ".".join(map(_text, labels)).lower(), kind, message[HEADER.size : end])


def _text(label: bytes) -> str:
    """A dot inside a label must not look like one between labels: `a.example` + `com` is not below example.com."""
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"-_*" else f"\\{byte:03d}" for byte in label
    )


def _skip_name(message: bytes, position: int) -> int:
    while True:
        length = _byte(message, position)
        if length >= 0xC0:
            return position + 2
        if length > 63:
            raise Malformed("a label of an unknown kind")
        position += 1 + length
        if length == 0:
            return position


def _byte(message: bytes, position: int) -> int:
    if position >= len(message):
        raise Malformed("a name is cut off")
    return message[position]
