"""The one place where a database's errors become ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, SQLAlchemyError, StatementError

_DATA = "22"  # SQLSTATE class: a value that PostgreSQL cannot keep, for example a NUL character in text
_CONNECT = {
    "28P01": "it refuses this user or password",
    "28000": "it refuses this user",
    "3D000": "there is no such database; create it first",
    "53300": "it has no connection left; raise max_connections there",
    "42501": "this user may not do that",
}


@dataclass(frozen=True)
class Faults:
    """The errors that one half of the product speaks in."""

    own: type[Exception]  # what it raised itself stays as it is
    conflict: Callable[[str], Exception]
    invalid: Callable[[str], Exception]
    unavailable: Callable[[str], Exception]
    misconfigured: Callable[[str], Exception]


@contextmanager
def translated(faults: Faults, doing: str, place: str) -> Iterator[None]:
    """Raise our errors for the database's own. Messages reach callers, so they hold no SQL, value or password."""
    try:
        yield
    except faults.own:
        raise
    except (SQLAlchemyError, OSError, UnicodeError, OverflowError) as error:
        raise _translate(faults, error, doing, place) from error
    except Exception as error:
        if type(error).__module__.startswith("asyncpg"):  # raised while connecting, before SQLAlchemy wraps
            raise _translate(faults, error, doing, place) from error
        raise


def _translate(faults: Faults, error: Exception, doing: str, place: str) -> Exception:
    original: Any = getattr(error, "orig", None) or error
    cause = getattr(original, "__cause__", None)
    state = getattr(original, "sqlstate", None) or getattr(cause, "sqlstate", None) or ""
    if isinstance(error, IntegrityError):
        return faults.conflict(f"could not {doing}: it exists already, or what it belongs to does not exist")
    if state.startswith(_DATA) or _is_bad_value(error, cause):
        return faults.invalid(f"could not {doing}: a value holds characters or numbers that cannot be stored")
    return faults.unavailable(f"could not {doing}: {place} {_trouble(error, original, state)}")


def _trouble(error: Exception, original: Any, state: str) -> str:
    if state in _CONNECT:
        return f"answers that {_CONNECT[state]}"
    text = str(original)
    if "database is locked" in text:
        return "is locked by another process; end that one and try again"
    if "not a database" in text or "malformed" in text:
        return "is damaged, or not a database; restore it from a backup"
    if "disk is full" in text or "readonly database" in text or "unable to open" in text:
        return f"cannot be written ({text}); check the disk and its permissions"
    if isinstance(error, (OSError, TimeoutError)) or not isinstance(error, DBAPIError):
        return "cannot be reached; check that it runs and try again"
    return f"failed ({type(original).__name__}); the server's log has more"


def _is_bad_value(error: Exception, cause: object) -> bool:
    """Values that the driver refuses before they reach the database."""
    if isinstance(error, (UnicodeError, OverflowError)):
        return True
    if isinstance(error, StatementError) and isinstance(error.orig, (UnicodeError, OverflowError, ValueError)):
        return True
    return isinstance(error, (InterfaceError, DBAPIError)) and isinstance(cause, (ValueError, OverflowError))
