"""What users used: hours of sandboxes and their size, starts, tokens and cost, by day, user, repository and agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageKey:
    """Whom something is counted for. Empty: nobody, or none."""

    day: str  # 2026-11-18, in UTC
    user_id: str = ""
    repository: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAmount:
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory_gib_s: float = 0.0
    starts: int = 0
    tasks: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    tokens_cached: int = 0
    cost_usd: float = 0.0

    def plus(self, other: UsageAmount) -> UsageAmount:
        return UsageAmount(
            seconds=self.seconds + other.seconds,
            cpu_s=self.cpu_s + other.cpu_s,
            memory_gib_s=self.memory_gib_s + other.memory_gib_s,
            starts=self.starts + other.starts,
            tasks=self.tasks + other.tasks,
            tokens_input=self.tokens_input + other.tokens_input,
            tokens_output=self.tokens_output + other.tokens_output,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            cost_usd=self.cost_usd + other.cost_usd,
        )


class UsageStore(Protocol):
    async def meters(self, provider: str) -> Mapping[str, datetime]:
        """Until when each sandbox of a provider was counted."""

    async def charge(
        self, provider: str, amounts: Mapping[UsageKey, UsageAmount], until: Mapping[str, datetime]
    ) -> None:
        """Add what was used and move the meters, in one transaction."""

    async def totals(
        self, first_day: str, last_day: str, user_id: str | None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        """By day, both included."""

    async def forget_meters(self, before: datetime) -> None:
        """Of sandboxes that were last counted before."""
