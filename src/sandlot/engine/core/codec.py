"""Records as JSON and back: what is kept in files beside a machine, and what goes between a control plane and its nodes."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
_ABSTRACT = {"collections.abc.Mapping": dict, "collections.abc.Sequence": list, "collections.abc.Collection": list}


def encode(value: Any) -> Any:
    """Plain JSON data. Raises `TypeError` for what is no record."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: encode(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted(encode(each) for each in value)
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def decode(kind: Any, data: Any) -> Any:
    """What `encode` was given, by its type. Fields that are missing get their default; unknown ones are passed over.

    Raises `TypeError` or `ValueError` for data of another form.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data)
    if origin is not None:
        return _decode_many(origin, typing.get_args(kind), data)
    if kind is type(None):
        return None
    if is_dataclass(kind):
        return _decode_record(kind, data)
    if kind is datetime:
        return datetime.fromisoformat(data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{type(data).__name__} where {kind.__name__} was expected")
    return data


def _decode_record(kind: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{type(data).__name__} where {kind.__name__} was expected")
    hints = _hints(kind)
    return kind(**{name: decode(hints[name], value) for name, value in data.items() if name in hints})


def _decode_many(origin: Any, arguments: tuple[Any, ...], data: Any) -> Any:
    name = f"{origin.__module__}.{origin.__qualname__}"
    made = _ABSTRACT.get(name, origin)
    if made is dict:
        return {str(key): decode(arguments[1], value) for key, value in dict(data).items()}
    if not isinstance(data, list):
        raise TypeError(f"{type(data).__name__} where a list was expected")
    if made is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return tuple(decode(kind, value) for kind, value in zip(arguments, data, strict=True))
    return made(decode(arguments[0], value) for value in data)


def _decode_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """The one member that has the form of the data: nothing, a record (an object), or a word."""
    if data is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind is not type(None) and is_dataclass(kind) == isinstance(data, dict):
            return decode(kind, data)
    raise TypeError(f"{type(data).__name__} fits none of {kinds}")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)
