"""Lets the engine have templates made that come with the server, by those who know their recipes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sandlot.engine.control.stock_templates import StockTemplate
from sandlot.recipes import stock
from sandlot.recipes.stock_templates import Progress, StockTemplates


class StockMaker:
    """`MissingTemplates` by the stock templates."""

    def __init__(self, templates: StockTemplates) -> None:
        self._templates = templates

    def name_of(self, ref: str) -> str | None:
        return self._templates.name_of(ref)

    def refusal(self, ref: str) -> str | None:
        return stock.refusal(ref.partition(":")[0])

    async def wait(self, name: str, within_s: float) -> StockTemplate:
        return _shown(await self._templates.wait(name, within_s))

    def begin(self, name: str) -> StockTemplate:
        return _shown(self._templates.begin(name))

    def all(self) -> Sequence[StockTemplate]:
        return [_shown(each) for each in self._templates.all()]

    def lines(self, name: str, after: int) -> tuple[Sequence[str], int]:
        return self._templates.lines(name, after)


def _shown(progress: Progress) -> StockTemplate:
    return StockTemplate(**dataclasses.asdict(progress))
