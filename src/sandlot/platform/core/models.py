"""The nouns of the model gateway: where models are served, who calls them, what a call used, and how much may be spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from sandlot.platform.core.events import Event

NANO = 1_000_000_000  # money is counted in billionths of a dollar: a call may cost less than a millionth


class ModelApi(StrEnum):
    """The protocol that an endpoint speaks."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """Where models are served, and the key that is added there. `models` and the names of prices are patterns (`claude-*`)."""

    name: str
    api: ModelApi
    url: str
    key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ("*",)
    aliases: Mapping[str, str] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()  # endpoints of the same protocol that are asked when this one fails


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """In dollars for a million tokens. What is None costs as much as `input`."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTokens:
    """What one call used. `input` includes what came from the cache, and what was written to it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


class BudgetScope(StrEnum):
    TASK = "task"
    SESSION = "session"
    USER = "user"  # by month
    ALL = "all"  # everybody together, by month


@dataclass(frozen=True, slots=True)
class BudgetKey:
    """What a budget is for. `period` is a month such as 2026-11; empty for budgets that have none."""

    scope: BudgetScope
    subject: str
    period: str = ""

    def __str__(self) -> str:
        named = {"all": "everybody"}.get(self.scope, f"{self.scope.value} {self.subject}")
        return f"{named} in {self.period}" if self.period else named


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCap:
    """How much may be spent. What is None has no limit."""

    cost_usd: float | None = None
    tokens: int | None = None

    @property
    def is_none(self) -> bool:
        return self.cost_usd is None and self.tokens is None

    def share(self, spent: Spent) -> float:
        """How much of it is spent: 1.0 is all of it."""
        shares = [0.0]
        if self.cost_usd is not None:
            shares.append(spent.cost_nano / (self.cost_usd * NANO) if self.cost_usd > 0 else 1.0)
        if self.tokens is not None:
            shares.append(spent.tokens / self.tokens if self.tokens > 0 else 1.0)
        return max(shares)

    def __str__(self) -> str:
        parts = [f"${self.cost_usd:.2f}"] if self.cost_usd is not None else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens is not None else []
        return " and ".join(parts) or "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    cost_nano: int = 0
    tokens: int = 0
    calls: int = 0

    def plus(self, cost_nano: int, tokens: int) -> Spent:
        return Spent(cost_nano=self.cost_nano + cost_nano, tokens=self.tokens + tokens, calls=self.calls + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient:
    """Who calls a model: a task or session by its virtual key, or a user with a key of the platform."""

    user_id: str
    scope: BudgetScope
    id: str
    agent: str | None = None
    repository: str | None = None
    cap: BudgetCap = field(default_factory=BudgetCap)  # of this task or session


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call of a model that was paid for.

    `priced` is false for a model whose price nobody knows: its cost is a guess, and a high one. `estimated` is true
    where the answer ended before it said what it used.
    """

    at: datetime
    client: ModelClient
    endpoint: str
    model: str
    status: int
    tokens: ModelTokens
    cost_nano: int
    priced: bool = True
    estimated: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """What calls used together, grouped by what was asked for."""

    group: Mapping[str, str]
    calls: int
    input: int
    output: int
    cached: int
    cost_nano: int
    unpriced: int  # calls of models without a known price
    estimated: int


USAGE_GROUPS = ("user", "task", "session", "agent", "model", "endpoint", "repository", "day", "month")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    by: tuple[str, ...] = ("model",)
    user_id: str | None = None
    task: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 1000


class ModelCallStore(Protocol):
    async def add(self, call: ModelCall, budgets: Sequence[BudgetKey], events: Sequence[Event]) -> None:
        """Keep a call and add it to what these budgets have spent, with the events about it, in one transaction."""

    async def spent(self, budget: BudgetKey) -> Spent: ...

    async def totals(self, wanted: UsageQuery) -> Sequence[UsageTotal]: ...

    async def cap(self, scope: BudgetScope, subject: str) -> BudgetCap | None:
        """The limit that somebody set, instead of the configuration's. None: nobody did."""

    async def set_cap(self, scope: BudgetScope, subject: str, cap: BudgetCap | None) -> None:
        """None: the configuration counts again."""

    async def caps(self) -> Mapping[tuple[BudgetScope, str], BudgetCap]: ...
