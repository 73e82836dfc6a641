"""Webhooks: delivers events from the outbox to receivers, signed, with retries and backoff."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sandlot.platform.core.errors import PlatformError, Unavailable
from sandlot.platform.core.events import SANDBOX, Event
from sandlot.platform.core.model import Delivery, Webhook
from sandlot.platform.core.ports import Clock, DeliveryStore, WebhookTransport

log = logging.getLogger(__name__)
INTERVAL_S = 0.5
NOBODY_S = 30.0  # where no webhook is configured, only what an earlier configuration left has to be given up
PAGE = 100
AT_ONCE = 8
MAX_ATTEMPTS = 12  # with the waits below: some nine hours
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(hours=2)
SIGNATURE, TIMESTAMP, DELIVERY = "X-Sandlot-Signature", "X-Sandlot-Timestamp", "X-Sandlot-Delivery"


def event_json(event: Event) -> dict[str, Any]:
    """An event as JSON, in webhooks and over SSE."""
    return {
        "id": event.id,
        "type": event.type,
        "at": event.at.isoformat(),
        "user_id": event.user_id,
        "subject": {"kind": event.subject.kind, "id": event.subject.id},
        **({"sandbox_id": event.subject.id} if event.subject.kind == SANDBOX else {}),
        **({"session_id": event.session_id} if event.session_id is not None else {}),
        "data": dict(event.data),
    }


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Covers the timestamp too, so that a recorded message cannot be replayed later."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def wait_after(attempts: int) -> timedelta:
    longest_s = min(FIRST_WAIT.total_seconds() * 3.0**attempts, LONGEST_WAIT.total_seconds())
    return timedelta(seconds=longest_s * random.uniform(0.8, 1.0))


def webhooks_for(webhooks: Sequence[Webhook], event: Event) -> Sequence[str]:
    return [webhook.name for webhook in webhooks if webhook.wants(event)]


class WebhookDeliverer:
    def __init__(
        self, *, store: DeliveryStore, transport: WebhookTransport, webhooks: Sequence[Webhook], clock: Clock
    ) -> None:
        self._store, self._transport, self._clock = store, transport, clock
        self._webhooks: Mapping[str, Webhook] = {webhook.name: webhook for webhook in webhooks}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            await asyncio.sleep(interval_s if self._webhooks else NOBODY_S)
            try:
                await self.deliver_due()
            except PlatformError as error:
                log.error("could not look for webhooks to send: %s", error)

    async def deliver_due(self) -> None:
        """Start the deliveries that are due. A slow receiver delays no other."""
        for delivery in await self._store.due(self._clock(), PAGE):
            if delivery.id not in self._busy:
                self._busy.add(delivery.id)
                task = asyncio.create_task(self._deliver(delivery))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            async with self._turns:
                await self._attempt(delivery)
        except PlatformError as error:
            log.error("could not update the outbox: %s", error)
        finally:
            self._busy.discard(delivery.id)

    async def _attempt(self, delivery: Delivery) -> None:
        webhook = self._webhooks.get(delivery.webhook)
        if webhook is None:
            await self._store.give_up(delivery.id, "no such webhook in the configuration any more")
            return
        body = json.dumps(event_json(delivery.event), separators=(",", ":")).encode()
        timestamp = str(int(self._clock().timestamp()))
        headers = {
            "Content-Type": "application/json",
            TIMESTAMP: timestamp,
            DELIVERY: f"{webhook.name}-{delivery.event.id}",  # the same at every attempt: receivers can tell
            SIGNATURE: sign(webhook.secret, timestamp, body),
        }
        try:
            await self._transport.send(webhook, body, headers)
        except Unavailable as error:
            await self._failed(delivery, str(error))
        else:
            await self._store.delivered(delivery.id)

    async def _failed(self, delivery: Delivery, problem: str) -> None:
        if delivery.attempts + 1 >= MAX_ATTEMPTS:
            log.error("webhook %s did not accept event %d, giving up: %s", delivery.webhook, delivery.event.id, problem)
            await self._store.give_up(delivery.id, problem)
            return
        await self._store.postpone(delivery.id, self._clock() + wait_after(delivery.attempts), problem)
