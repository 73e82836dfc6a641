"""Makes records of the JSON that the platform answers with. Fields that this client does not know are left out."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

Record = TypeVar("Record")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def decoded(kind: type[Record], answer: Mapping[str, Any]) -> Record:
    """`kind` is a dataclass of plain values, times, tuples and other dataclasses."""
    anything: Any = kind
    hints = _hints(anything)
    known = [field.name for field in dataclasses.fields(kind) if field.name in answer]  # type: ignore[arg-type]
    return kind(**{name: _value(hints[name], answer[name]) for name in known})


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(one for one in typing.get_args(hint) if one is not type(None))
        return _value(inner, value)
    if origin is tuple:
        return tuple(_value(typing.get_args(hint)[0], each) for each in value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if dataclasses.is_dataclass(hint):
        kind: Any = hint
        return decoded(kind, value)
    return value
