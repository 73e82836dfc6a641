"""GitHub's webhooks as they come in: the signature is checked, they are stored before they are answered, and acted on once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

from sandlot.platform.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PlatformError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.triggers import GitHubDelivery, InboxStatus
from sandlot.platform.triggers.ports import Handle, InboxStore

log = logging.getLogger(__name__)
MAX_BODY = 25_000_000  # GitHub sends no more
EVENTS = frozenset(
    [
        "check_run",
        "check_suite",
        "workflow_run",
        "workflow_job",
        "issues",
        "issue_comment",
        "pull_request",
        "pull_request_review",
        "pull_request_review_comment",
        "push",
        "installation",
        "installation_repositories",
        "ping",
    ]
)
INTERVAL_S = 2.0  # what arrives here is acted on at once; this is for retries and other servers' deliveries
PAGE = 100
AT_ONCE = 4
LEASE = timedelta(seconds=45)  # how long after a crash others wait with what was begun
HANDLING_S = 40.0
CLAIMED = 25
MAX_ATTEMPTS = 8  # with the waits below: some two hours
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(hours=1)
MAX_OUTCOME = 500
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_NAME = re.compile(r"[a-z_]{1,64}")


class GitHubInbox:
    """`secret` is what GitHub signs with; without one nothing is taken."""

    def __init__(self, *, store: InboxStore, secret: str | None, handle: Handle, clock: Clock, keep_s: int) -> None:
        self._store, self._secret, self._handle, self._clock = store, secret, handle, clock
        self._keep = timedelta(seconds=keep_s)
        self._arrived: list[tuple[GitHubDelivery, bytes, asyncio.Future[bool]]] = []
        self._storing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._purged_at: datetime | None = None

    # -- arriving ---------------------------------------------------------------------------------------------------

    async def receive(self, headers: Mapping[str, str], body: bytes) -> tuple[GitHubDelivery, bool]:
        """Store one. Returns it, and whether it is new. `headers` have small letters."""
        self.check(headers, body)
        id, event = headers.get("x-github-delivery", ""), headers.get("x-github-event", "")
        if not _ID.fullmatch(id) or not _NAME.fullmatch(event):
            raise InvalidRequest("X-GitHub-Delivery or X-GitHub-Event is missing, or nothing that GitHub sends")
        payload = await asyncio.to_thread(parsed, headers, body) if len(body) > 1 << 20 else parsed(headers, body)
        now = self._clock()
        known = event in EVENTS
        delivery = GitHubDelivery(
            id=id,
            event=event,
            action=_text(payload, "action"),
            repository=_text(payload, "repository", "full_name"),
            sender=_text(payload, "sender", "login"),
            received_at=now,
            status=InboxStatus.WAITING if known else InboxStatus.IGNORED,
            next_at=now if known else None,
            outcome="" if known else "nothing is done for this event",
        )
        is_new = await self._keep_it(delivery, body)
        self._news.set()
        return delivery, is_new

    def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """Raises `NotFound`, `TooLarge`, `Unauthorized`."""
        if self._secret is None:
            raise NotFound("this server takes no webhooks of GitHub; set webhook_secret_env in [github]")
        if len(body) > MAX_BODY:
            raise TooLarge("GitHub sends at most 25 MB")
        expected = "sha256=" + hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), headers.get("x-hub-signature-256", "").encode()):
            raise Unauthorized("the signature in X-Hub-Signature-256 is not that of this body; is the secret the same?")

    async def _keep_it(self, delivery: GitHubDelivery, body: bytes) -> bool:
        """Those that arrive at the same time are stored in one transaction, so that a burst is answered quickly."""
        kept: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._arrived.append((delivery, body, kept))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.ensure_future(self._store_all())
        return await kept

    async def _store_all(self) -> None:
        while self._arrived:
            batch, self._arrived = self._arrived[:PAGE], self._arrived[PAGE:]
            try:
                added = await self._added([(delivery, body) for delivery, body, _ in batch])
            except BaseException as error:
                for *_, kept in batch:
                    if not kept.done():
                        kept.set_exception(error if isinstance(error, Exception) else Unavailable("the server stops"))
                if not isinstance(error, Exception):
                    raise
                continue
            for (*_, kept), is_new in zip(batch, added, strict=True):
                if not kept.done():
                    kept.set_result(is_new)

    async def _added(self, batch: Sequence[tuple[GitHubDelivery, bytes]]) -> Sequence[bool]:
        try:
            return await self._store.add(batch)
        except Conflict:  # another server has stored one of them in between
            return await self._store.add(batch)

    # -- acting -----------------------------------------------------------------------------------------------------

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            try:
                while await self.act_on_due():
                    pass
                await self._purge()
            except PlatformError as error:
                log.error("could not look for webhooks of GitHub: %s", error)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), interval_s)
            except TimeoutError:
                continue

    async def act_on_due(self) -> int:
        """Act on what is due: in its order for one repository, side by side for several. Returns how many there were."""
        now = self._clock()
        due = await self._store.claim(now, now + LEASE, CLAIMED)
        left = {delivery.id for delivery in due}
        queues: defaultdict[str, list[GitHubDelivery]] = defaultdict(list)
        for delivery in due:
            queues[delivery.repository.lower()].append(delivery)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one_repository(queue: Sequence[GitHubDelivery]) -> None:
            async with turns:
                for delivery in queue:
                    await self._act(delivery)
                    left.discard(delivery.id)

        try:
            async with asyncio.TaskGroup() as group:
                for queue in queues.values():
                    group.create_task(one_repository(queue))
        except asyncio.CancelledError:  # the server stops: the next one need not wait
            if left:
                await self._store.release(sorted(left), now)
            raise
        return len(due)

    async def _act(self, delivery: GitHubDelivery) -> None:
        now = self._clock()
        if delivery.next_at is not None and now >= delivery.next_at:
            return  # the lease is over: it is, or will be, another one's turn
        try:
            async with asyncio.timeout(HANDLING_S):
                body = await self._store.body(delivery.id)
                handled = await self._handle(delivery, parsed({}, body))
            status = InboxStatus.DONE if handled.acted else InboxStatus.IGNORED
            settled = replace(delivery, status=status, next_at=None, outcome=handled.outcome, tasks=handled.tasks)
        except (PlatformError, TimeoutError) as error:
            settled = self._failed(delivery, error)
        except Exception as error:  # a payload that we did not think of must not stop the others
            log.exception("could not act on delivery %s of GitHub", delivery.id)
            settled = replace(delivery, status=InboxStatus.FAILED, next_at=None, outcome=f"a fault: {error!r}")
        await self._store.settle(
            replace(settled, outcome=settled.outcome[:MAX_OUTCOME], attempts=delivery.attempts + 1)
        )

    def _failed(self, delivery: GitHubDelivery, error: Exception) -> GitHubDelivery:
        words = str(error) or "it took too long"
        final = isinstance(error, PlatformError) and not isinstance(error, Unavailable | Conflict)
        if final or delivery.attempts + 1 >= MAX_ATTEMPTS:
            log.error("delivery %s of GitHub is given up: %s", delivery.id, words)
            return replace(delivery, status=InboxStatus.FAILED, next_at=None, outcome=words)
        told = timedelta(seconds=error.retry_after_s if isinstance(error, Unavailable) else 0)
        wait = min(FIRST_WAIT * 3**delivery.attempts, LONGEST_WAIT) * random.uniform(0.8, 1.0)
        return replace(delivery, next_at=self._clock() + max(wait, told), outcome=words)

    async def _purge(self) -> None:
        now = self._clock()
        if self._purged_at is None or now - self._purged_at > timedelta(minutes=10):
            self._purged_at = now
            await self._store.purge(now - self._keep)

    # -- looking and repeating --------------------------------------------------------------------------------------

    async def list(self, limit: int, status: InboxStatus | None = None) -> Sequence[GitHubDelivery]:
        return await self._store.list(limit, status)

    async def get(self, id: str) -> GitHubDelivery:
        found = await self._store.get(id)
        if found is None:
            raise NotFound(f"there is no delivery {id[:80]!r}")
        return found

    async def replay(self, id: str) -> GitHubDelivery:
        """Act on it once more, as if it were another one."""
        found = await self.get(id)
        if found.status is InboxStatus.WAITING:
            raise Conflict(f"delivery {id!r} waits to be acted on already")
        again = replace(found, status=InboxStatus.WAITING, attempts=0, next_at=self._clock(), replays=found.replays + 1)
        await self._store.settle(replace(again, outcome="", tasks=()))
        self._news.set()
        return await self.get(id)

    async def close(self) -> None:
        if self._storing is not None:
            await asyncio.gather(self._storing, return_exceptions=True)


def parsed(headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    """The payload: JSON, or a form with JSON in it. Raises `InvalidRequest`."""
    try:
        if headers.get("content-type", "").startswith("application/x-www-form-urlencoded") or body[:8] == b"payload=":
            body = parse_qs(body.decode("ascii"), max_num_fields=1)["payload"][0].encode()
        found = json.loads(body)
    except (ValueError, KeyError, IndexError, RecursionError):
        raise InvalidRequest("the body is not JSON") from None
    if not isinstance(found, Mapping):
        raise InvalidRequest("the body is not a JSON object")
    return found


def _text(payload: Mapping[str, Any], *steps: str) -> str:
    found: Any = payload
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return "".join(letter for letter in found[:200] if letter.isprintable()) if isinstance(found, str) else ""
