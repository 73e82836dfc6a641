"""The outbox of webhooks in the database: pending deliveries, and those that were given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, update

from sandlot.platform.core.model import Delivery, WebhookBacklog
from sandlot.platform.store import records
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import deliveries, events

MAX_PROBLEM = 300


class SqlDeliveries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, now: datetime, limit: int) -> Sequence[Delivery]:
        own = (deliveries.c.id.label("delivery"), deliveries.c.webhook, deliveries.c.attempts, deliveries.c.next_at)
        query = (
            select(*own, events)
            .join(events, events.c.id == deliveries.c.event_id)
            .where(deliveries.c.next_at <= now)
            .order_by(deliveries.c.id)
            .limit(limit)
        )
        async with self._database.read("look for webhooks to send") as connection:
            return [
                Delivery(
                    id=row["delivery"],
                    webhook=row["webhook"],
                    event=records.event(row),
                    attempts=row["attempts"],
                    next_at=row["next_at"],
                )
                for row in (await connection.execute(query)).mappings()
            ]

    async def delivered(self, delivery: int) -> None:
        async with self._database.write("note a delivered webhook") as connection:
            await connection.execute(delete(deliveries).where(deliveries.c.id == delivery))

    async def postpone(self, delivery: int, until: datetime, problem: str) -> None:
        await self._failed(delivery, until, problem)

    async def give_up(self, delivery: int, problem: str) -> None:
        await self._failed(delivery, None, problem)

    async def backlog(self) -> Mapping[str, WebhookBacklog]:
        given_up = deliveries.c.next_at.is_(None)
        counts = select(
            deliveries.c.webhook,
            func.count().filter(~given_up),
            func.count().filter(given_up),
            func.max(deliveries.c.id).filter(deliveries.c.problem.is_not(None)),
        ).group_by(deliveries.c.webhook)
        async with self._database.read("count webhooks to send") as connection:
            rows = (await connection.execute(counts)).all()
            newest = select(deliveries.c.id, deliveries.c.problem).where(deliveries.c.id.in_([row[3] for row in rows]))
            problems = {row[0]: row[1] for row in (await connection.execute(newest)).all()}
        return {
            webhook: WebhookBacklog(waiting=waiting, given_up=lost, problem=problems.get(last))
            for webhook, waiting, lost, last in rows
        }

    async def _failed(self, delivery: int, next_at: datetime | None, problem: str) -> None:
        change = update(deliveries).where(deliveries.c.id == delivery)
        values = {"attempts": deliveries.c.attempts + 1, "next_at": next_at, "problem": problem[:MAX_PROBLEM]}
        async with self._database.write("note a failed webhook") as connection:
            await connection.execute(change.values(values))
