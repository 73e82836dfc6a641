"""Browser sessions and login links in the database, by digest."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert, or_, select, update

from sandlot.platform.core.console import BrowserSession, LoginLink
from sandlot.platform.store import records
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import browser_sessions, login_links


class SqlLogins:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_session(self, session: BrowserSession) -> None:
        async with self._database.write("log a browser in") as connection:
            await connection.execute(insert(browser_sessions), records.browser_session_row(session))

    async def session(self, digest: str) -> BrowserSession | None:
        async with self._database.read("look up a browser session") as connection:
            query = select(browser_sessions).where(browser_sessions.c.digest == digest)
            row = (await connection.execute(query)).mappings().one_or_none()
            return records.browser_session(row) if row is not None else None

    async def touch_session(self, digest: str, at: datetime) -> None:
        change = update(browser_sessions).where(browser_sessions.c.digest == digest).values(seen_at=at)
        async with self._database.write("note the use of a browser session") as connection:
            await connection.execute(change)

    async def remove_session(self, digest: str) -> None:
        async with self._database.write("log a browser out") as connection:
            await connection.execute(delete(browser_sessions).where(browser_sessions.c.digest == digest))

    async def add_link(self, link: LoginLink) -> None:
        async with self._database.write("keep a login link") as connection:
            await connection.execute(insert(login_links), records.login_link_row(link))

    async def take_link(self, digest: str) -> LoginLink | None:
        async with self._database.write("use a login link") as connection:
            query = select(login_links).where(login_links.c.digest == digest)
            row = (await connection.execute(query)).mappings().one_or_none()
            # Of two that read it at once, the one whose delete counts has it.
            gone = await connection.execute(delete(login_links).where(login_links.c.digest == digest))
            return records.login_link(row) if row is not None and gone.rowcount == 1 else None

    async def purge(self, before: datetime, unused_since: datetime) -> int:
        sessions = delete(browser_sessions).where(
            or_(browser_sessions.c.ends_at < before, browser_sessions.c.seen_at < unused_since)
        )
        links = delete(login_links).where(login_links.c.ends_at < before)
        async with self._database.write("forget old logins") as connection:
            return (await connection.execute(sessions)).rowcount + (await connection.execute(links)).rowcount
