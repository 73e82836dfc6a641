"""Turns messages into bytes and back: proto3 JSON and the protobuf wire format, both driven by the tables in `messages`."""

from __future__ import annotations

import json
import time
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from envd.messages import ENUM_NAMES, ENUMS, SHAPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from envd.messages import Field, Message

_LIMITS = {"uint32": (0, 2**32 - 1), "sint32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Undecodable(ValueError):
    """The bytes are not a message of the expected shape; the text says where they fail."""


# --- proto3 JSON


def encode_json(kind: str, message: Message) -> bytes:
    return dump_json(_to_json(kind, message))


def dump_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def parse_json(data: bytes) -> Any:
    """Parse JSON text. Raises `Undecodable` for anything that is not exactly one JSON value in UTF-8."""
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise Undecodable("the body is not valid UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the body is not valid JSON: {error}") from error


def decode_json(kind: str, data: bytes) -> Message:
    return _from_json(kind, parse_json(data or b"{}"), kind)


def _to_json(kind: str, message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in SHAPES[kind].fields:
        value = message.get(field.name)
        if value is None or (not value and not field.optional):
            continue
        out[field.name] = (
            [_value_to_json(field, item) for item in value] if field.repeated else _value_to_json(field, value)
        )
    return out


def _value_to_json(field: Field, value: Any) -> Any:
    kind = field.kind
    if kind == "bytes":
        return b2a_base64(value, newline=False).decode("ascii")
    if kind == "int64":
        return str(value)
    if kind in ("string", "map"):
        return _readable(value)
    if kind in ENUMS:
        return ENUM_NAMES[kind].get(value, value)
    if kind == "timestamp":
        seconds, nanos = value
        fraction = f".{nanos:09d}" if nanos else ""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + fraction + "Z"
    return _to_json(kind, value) if kind in SHAPES else value


def _readable(value: Any) -> Any:
    """File names may hold bytes that are no UTF-8 (surrogates here); strings on the wire may not."""
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _from_json(kind: str, value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise Undecodable(f"{where} must be an object")
    message: Message = {}
    by_name = SHAPES[kind].by_name
    for name, item in value.items():
        field = by_name.get(name)
        if field is None or item is None:
            continue
        if not field.repeated:
            message[field.name] = _value_from_json(field, item, f"{where}.{name}")
        elif isinstance(item, list):
            message[field.name] = [_value_from_json(field, each, f"{where}.{name}[{i}]") for i, each in enumerate(item)]
        else:
            raise Undecodable(f"{where}.{name} must be a list")
    return message


def _value_from_json(field: Field, value: Any, where: str) -> Any:
    kind = field.kind
    if kind == "string":
        return _text(value, where)
    if kind == "bytes":
        return _base64(value, where)
    if kind == "bool":
        if not isinstance(value, bool):
            raise Undecodable(f"{where} must be true or false")
        return value
    if kind in _LIMITS:
        return _integer(kind, value, where)
    if kind in ENUMS:
        return _enum(kind, value, where)
    if kind == "map":
        if not isinstance(value, dict):
            raise Undecodable(f"{where} must be an object")
        return {_text(key, where): _text(item, f"{where}.{key}") for key, item in value.items()}
    return _from_json(kind, value, where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Undecodable(f"{where} must be a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # a lone surrogate escape
        raise Undecodable(f"{where} is not valid Unicode") from error
    return value


def _base64(value: Any, where: str) -> bytes:
    try:
        data = value.encode("ascii").translate(_URL_SAFE)
        return a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True) if data else b""
    except (AttributeError, UnicodeEncodeError, Base64Error) as error:
        raise Undecodable(f"{where} must be base64 text") from error


_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def _integer(kind: str, value: Any, where: str) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()) or len(str(value)) > 24:
            raise ValueError
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Undecodable(f"{where} must be an integer") from error
    low, high = _LIMITS[kind]
    if not low <= number <= high:
        raise Undecodable(f"{where} is out of range")
    return number


def _enum(kind: str, value: Any, where: str) -> int:
    number = ENUMS[kind].get(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise Undecodable(f"{where} must be one of {', '.join(ENUMS[kind])}")
    return number


# --- protobuf


def encode_proto(kind: str, message: Message) -> bytes:
    out = bytearray()
    for field in SHAPES[kind].fields:
        value = message.get(field.name)
        if value is None or (not value and not field.optional):
            continue
        for item in _proto_items(field, value):
            _put(out, field, item)
    return bytes(out)


def _proto_items(field: Field, value: Any) -> list[Any]:
    if field.kind == "map":
        return list(value.items())
    return list(value) if field.repeated else [value]


def _put(out: bytearray, field: Field, value: Any) -> None:
    kind = field.kind
    if kind in _LIMITS or kind in ENUMS or kind == "bool":
        out += _varint(field.number << 3)
        out += _varint((value << 1 if value >= 0 else (-value << 1) - 1) if kind == "sint32" else int(value))
        return
    if kind == "bytes":
        data = value
    elif kind == "string":
        data = _readable(value).encode()
    elif kind == "map":
        data = _delimited(1, _readable(value[0]).encode()) + _delimited(2, _readable(value[1]).encode())
    elif kind == "timestamp":
        data = b"\x08" + _varint(value[0]) + b"\x10" + _varint(value[1])
    else:
        data = encode_proto(kind, value)
    out += _delimited(field.number, data)


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_proto(kind: str, data: bytes) -> Message:
    shape = SHAPES[kind]
    message: Message = {}
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        value, at = _read_value(data, at, key & 7)
        field = shape.by_number.get(key >> 3)
        if field is None:
            continue
        _store(message, field, key & 7, value, kind)
    return message


def _store(message: Message, field: Field, wire: int, value: Any, where: str) -> None:
    where = f"{where}.{field.name}"
    is_number = field.kind in _LIMITS or field.kind in ENUMS or field.kind == "bool"
    if wire != (0 if is_number else 2):
        raise Undecodable(f"{where} has the wrong wire type")
    decoded = _number(field.kind, value) if is_number else _block(field.kind, value, where)
    if field.repeated:
        message.setdefault(field.name, []).append(decoded)
    elif field.kind == "map":
        message.setdefault(field.name, {}).update(decoded)
    else:
        message[field.name] = decoded


def _number(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return value != 0
    if kind == "sint32":
        return (value >> 1) ^ -(value & 1)
    if kind == "uint32":
        return value & 0xFFFFFFFF
    return value - 2**64 if value >= 2**63 else value


def _block(kind: str, data: bytes, where: str) -> Any:
    if kind == "bytes":
        return data
    if kind == "string":
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Undecodable(f"{where} is not valid UTF-8") from error
    if kind == "map":
        entry = decode_proto("MapEntry", data)
        return {entry.get("key", ""): entry.get("value", "")}
    return decode_proto(kind, data)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Undecodable("the message is cut short or has a broken number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7


def _read_value(data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    if wire == 0:
        return _read_varint(data, at)
    if wire == 2:
        length, at = _read_varint(data, at)
    elif wire in (1, 5):
        length = 8 if wire == 1 else 4
    else:
        raise Undecodable(f"the message has an unknown wire type {wire}")
    if length > len(data) - at:
        raise Undecodable("the message is cut short")
    return data[at : at + length], at + length


class Codec:
    """A pair of functions that speak one content type."""

    __slots__ = ("decode", "encode", "name")

    def __init__(
        self, name: str, encode: Callable[[str, Message], bytes], decode: Callable[[str, bytes], Message]
    ) -> None:
        self.name = name
        self.encode = encode
        self.decode = decode


JSON = Codec("json", encode_json, decode_json)
PROTO = Codec("proto", encode_proto, decode_proto)
