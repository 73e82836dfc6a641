"""The shape of every message on the wire, as tables: field numbers, JSON names and kinds.

Inside the daemon a message is a plain dict keyed by JSON name: bytes are bytes, enums are numbers, a timestamp is a pair
(seconds, nanoseconds). A key that is absent is a field that was not set.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Message = dict[str, Any]


class Field:
    """One field: `kind` is a scalar, `timestamp`, `map`, or the name of an enum or message."""

    __slots__ = ("kind", "name", "number", "optional", "repeated", "snake")

    def __init__(self, number: int, name: str, kind: str) -> None:
        self.number = number
        self.repeated = kind.endswith("[]")
        self.optional = kind.endswith("?")  # presence is kept: sent even when it holds the default
        self.kind = kind.rstrip("[]?")
        self.name = name
        self.snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


class Shape:
    """The fields of one message, by number and by either spelling of the name."""

    __slots__ = ("by_name", "by_number", "fields")

    def __init__(self, *fields: tuple[int, str, str]) -> None:
        self.fields = tuple(Field(*field) for field in fields)
        self.by_number = {field.number: field for field in self.fields}
        self.by_name = {name: field for field in self.fields for name in (field.name, field.snake)}


ENUMS: Mapping[str, Mapping[str, int]] = {
    "Signal": {"SIGNAL_UNSPECIFIED": 0, "SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9},
    "FileType": {
        "FILE_TYPE_UNSPECIFIED": 0,
        "FILE_TYPE_FILE": 1,
        "FILE_TYPE_DIRECTORY": 2,
        "FILE_TYPE_SYMLINK": 3,
    },
    "EventType": {
        "EVENT_TYPE_UNSPECIFIED": 0,
        "EVENT_TYPE_CREATE": 1,
        "EVENT_TYPE_WRITE": 2,
        "EVENT_TYPE_REMOVE": 3,
        "EVENT_TYPE_RENAME": 4,
        "EVENT_TYPE_CHMOD": 5,
    },
}
ENUM_NAMES = {kind: {number: name for name, number in names.items()} for kind, names in ENUMS.items()}

_EMPTY = Shape()
_PATH = Shape((1, "path", "string"))
_SELECTED = Shape((1, "process", "ProcessSelector"))
_ENTRY = Shape((1, "entry", "EntryInfo?"))
_WATCH = Shape(
    (1, "path", "string"), (2, "recursive", "bool"), (3, "includeEntry", "bool"), (4, "allowNetworkMounts", "bool")
)
_WATCHER = Shape((1, "watcherId", "string"))
_EVENT = Shape((1, "event", "ProcessEvent?"))

# Members of a oneof are marked optional: which one is set is the information.
SHAPES: Mapping[str, Shape] = {
    "Empty": _EMPTY,
    "MapEntry": Shape((1, "key", "string"), (2, "value", "string")),
    "Size": Shape((1, "cols", "uint32"), (2, "rows", "uint32")),
    "PTY": Shape((1, "size", "Size?")),
    "ProcessConfig": Shape((1, "cmd", "string"), (2, "args", "string[]"), (3, "envs", "map"), (4, "cwd", "string?")),
    "ProcessSelector": Shape((1, "pid", "uint32?"), (2, "tag", "string?")),
    "ProcessInfo": Shape((1, "config", "ProcessConfig?"), (2, "pid", "uint32"), (3, "tag", "string?")),
    "ListResponse": Shape((1, "processes", "ProcessInfo[]")),
    "StartRequest": Shape(
        (1, "process", "ProcessConfig?"), (2, "pty", "PTY?"), (3, "tag", "string?"), (4, "stdin", "bool?")
    ),
    "StartResponse": _EVENT,
    "ConnectRequest": _SELECTED,
    "ConnectResponse": _EVENT,
    "ProcessEvent": Shape(
        (1, "start", "StartEvent?"), (2, "data", "DataEvent?"), (3, "end", "EndEvent?"), (4, "keepalive", "Empty?")
    ),
    "StartEvent": Shape((1, "pid", "uint32")),
    "DataEvent": Shape((1, "stdout", "bytes?"), (2, "stderr", "bytes?"), (3, "pty", "bytes?")),
    "EndEvent": Shape(
        (1, "exitCode", "sint32"), (2, "exited", "bool"), (3, "status", "string"), (4, "error", "string?")
    ),
    "UpdateRequest": Shape((1, "process", "ProcessSelector"), (2, "pty", "PTY?")),
    "ProcessInput": Shape((1, "stdin", "bytes?"), (2, "pty", "bytes?")),
    "SendInputRequest": Shape((1, "process", "ProcessSelector"), (2, "input", "ProcessInput")),
    "StreamInputRequest": Shape((1, "start", "InputStart?"), (2, "data", "InputData?"), (3, "keepalive", "Empty?")),
    "InputStart": _SELECTED,
    "InputData": Shape((2, "input", "ProcessInput")),
    "SendSignalRequest": Shape((1, "process", "ProcessSelector"), (2, "signal", "Signal")),
    "CloseStdinRequest": _SELECTED,
    "EntryInfo": Shape(
        (1, "name", "string"),
        (2, "type", "FileType"),
        (3, "path", "string"),
        (4, "size", "int64"),
        (5, "mode", "uint32"),
        (6, "permissions", "string"),
        (7, "owner", "string"),
        (8, "group", "string"),
        (9, "modifiedTime", "timestamp"),
        (10, "symlinkTarget", "string?"),
        (11, "metadata", "map"),
        (12, "isSymlink", "bool"),
    ),
    "StatRequest": _PATH,
    "StatResponse": _ENTRY,
    "MakeDirRequest": _PATH,
    "MakeDirResponse": _ENTRY,
    "MoveRequest": Shape((1, "source", "string"), (2, "destination", "string")),
    "MoveResponse": _ENTRY,
    "ListDirRequest": Shape((1, "path", "string"), (2, "depth", "uint32")),
    "ListDirResponse": Shape((1, "entries", "EntryInfo[]")),
    "RemoveRequest": _PATH,
    "WatchDirRequest": _WATCH,
    "WatchDirResponse": Shape(
        (1, "start", "Empty?"), (2, "filesystem", "FilesystemEvent?"), (3, "keepalive", "Empty?")
    ),
    "FilesystemEvent": Shape((1, "name", "string"), (2, "type", "EventType"), (3, "entry", "EntryInfo?")),
    "CreateWatcherRequest": _WATCH,
    "CreateWatcherResponse": _WATCHER,
    "GetWatcherEventsRequest": _WATCHER,
    "GetWatcherEventsResponse": Shape((1, "events", "FilesystemEvent[]")),
    "RemoveWatcherRequest": _WATCHER,
}
