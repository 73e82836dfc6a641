"""The one place where the database's errors become the platform's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from sandlot.platform.errors import Conflict, InvalidRequest, PlatformError, Unavailable

_DATA = "22"  # SQLSTATE class: a value that PostgreSQL cannot keep, for example a NUL character in text


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Messages reach callers, so they hold no SQL, value, path or password."""
    try:
        yield
    except PlatformError:
        raise
    except (SQLAlchemyError, OSError, UnicodeError, OverflowError) as error:
        raise _translate(error, doing) from error
    except Exception as error:
        if type(error).__module__.startswith("asyncpg"):  # raised while connecting, before SQLAlchemy wraps
            raise _translate(error, doing) from error
        raise


def _translate(error: Exception, doing: str) -> PlatformError:
    if isinstance(error, IntegrityError):
        return Conflict(f"could not {doing}: it exists already")
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None) or ""
    unfit = isinstance(error, (UnicodeError, OverflowError)) or (
        isinstance(error, StatementError) and isinstance(original, (UnicodeError, OverflowError, ValueError))
    )
    if unfit or str(state).startswith(_DATA):
        return InvalidRequest(f"could not {doing}: a value holds characters or numbers that cannot be stored")
    kind = type(original).__name__ if isinstance(error, DBAPIError) else type(error).__name__
    return Unavailable(f"could not {doing}: the platform's database does not work ({kind}); check that it runs")
