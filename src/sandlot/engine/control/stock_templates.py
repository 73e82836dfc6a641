"""Templates that are not there yet: who makes those that come with the server, and how far that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StockTemplate:
    """A template that comes with the server, and how far its build is."""

    name: str
    state: Literal["absent", "building", "failed", "ready"]
    seconds: int | None = None  # since its build began
    remaining_s: int | None = None  # about, by how long it takes elsewhere
    doing: str | None = None  # the last line of the build's log
    problem: str | None = None  # why it could not be built


class MissingTemplates(Protocol):
    """Who may know how to make a template that is not there."""

    def name_of(self, ref: str) -> str | None:
        """The stock template that is meant, also by one of E2B's public names; None: nobody knows it."""

    def refusal(self, ref: str) -> str | None:
        """Why a template that E2B has is not here; None: it is no such name."""

    async def wait(self, name: str, within_s: float) -> StockTemplate:
        """Begin to make it, unless that is under way, and return when it is there or the time is over."""

    def begin(self, name: str) -> StockTemplate:
        """Begin to make it again, unless that is under way."""

    def all(self) -> Sequence[StockTemplate]:
        """Every stock template."""

    def lines(self, name: str, after: int) -> tuple[Sequence[str], int]:
        """What its latest build logged after this many lines, and how many there are."""


class NoMissingTemplates:
    """A server that builds nothing by itself."""

    def name_of(self, ref: str) -> str | None:
        return None

    def refusal(self, ref: str) -> str | None:
        return None

    async def wait(self, name: str, within_s: float) -> StockTemplate:
        return StockTemplate(name=name, state="absent")

    def begin(self, name: str) -> StockTemplate:
        return StockTemplate(name=name, state="absent")

    def all(self) -> Sequence[StockTemplate]:
        return ()

    def lines(self, name: str, after: int) -> tuple[Sequence[str], int]:
        return (), 0
