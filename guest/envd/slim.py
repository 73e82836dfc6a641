"""Makes asyncio cheap to import, by standing in for the parts of the standard library it names but this daemon never reaches.

A plain `import asyncio` loads ssl, logging, inspect, typing, traceback and subprocess: more than half of the daemon's
start-up time, several times as much under gVisor. `install` must run before anything imports asyncio.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class _Late(ModuleType):
    """A module that loads itself when something beyond the attributes it was given is asked for."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        del sys.modules[self.__name__]
        real = __import__(self.__name__, fromlist=["_"])
        self.__dict__.update(real.__dict__)
        return getattr(real, name)


class _Annotation:
    """Stands for every name of typing: subscripting it or decorating with it changes nothing."""

    def __getattr__(self, name: str) -> _Annotation:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> _Annotation:
        return self

    def __call__(self, *args: object, **kwargs: object) -> object:
        return args[0] if args else self

    def __or__(self, other: object) -> _Annotation:
        return self

    __ror__ = __or__


class _Logger:
    """What asyncio logs to: warnings and errors go to the daemon's own log."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def isEnabledFor(self, level: int) -> bool:
        return level >= 30

    def debug(self, *args: object, **kwargs: object) -> None:
        pass

    info = addHandler = setLevel = setFormatter = debug

    def error(self, message: object, *args: object, exc_info: object = None, **kwargs: object) -> None:
        text = str(message) % args if args else str(message)
        if isinstance(exc_info, tuple):
            exc_info = exc_info[1]
        self._report(f"{text}: {exc_info!r}" if exc_info else text)

    warning = critical = exception = error

    def log(self, level: int, message: object, *args: object, **kwargs: object) -> None:
        self.error(message, *args, **kwargs)


def _is_coroutine_function(function: object) -> bool:
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x80)


def _module(name: str, **attributes: object) -> None:
    if name not in sys.modules:
        module = ModuleType(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module


def _late(name: str, **attributes: object) -> None:
    if name not in sys.modules:
        module = _Late(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module


def install(report: Callable[[str], None]) -> None:
    """Put the stand-ins in place; `report` receives what asyncio would have logged."""
    logger = _Logger(report)
    annotation = _Annotation()
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # None makes `import ssl` raise ImportError
    _late("inspect", iscoroutinefunction=_is_coroutine_function)
    _late("traceback", extract_stack=lambda *args, **kwargs: [])
    _late("linecache")
    _late("subprocess", PIPE=-1, STDOUT=-2, DEVNULL=-3)
    _module(
        "logging",
        getLogger=lambda name=None: logger,
        StreamHandler=lambda *args: logger,
        DEBUG=10,
        INFO=20,
        WARNING=30,
        ERROR=40,
        CRITICAL=50,
    )
    _module("typing", TYPE_CHECKING=False, __getattr__=annotation.__getattr__)
    _module("asyncio.staggered", __all__=())
