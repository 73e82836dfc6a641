"""The outbox of webhooks in the database: pending deliveries, and those that were given up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select, update

from sandlot.platform.core.model import Delivery
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

    async def _failed(self, delivery: int, next_at: datetime | None, problem: str) -> None:
        change = update(deliveries).where(deliveries.c.id == delivery)
        values = {"attempts": deliveries.c.attempts + 1, "next_at": next_at, "problem": problem[:MAX_PROBLEM]}
        async with self._database.write("note a failed webhook") as connection:
            await connection.execute(change.values(values))
