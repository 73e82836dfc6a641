"""Finds the template that a sandbox is to be made from; one that comes with the server is waited for while it is built."""

from __future__ import annotations

import asyncio

from sandlot.engine.control.stock_templates import MissingTemplates, StockTemplate
from sandlot.engine.core.errors import NotFound, NotReadyYet
from sandlot.engine.core.model import Template
from sandlot.engine.core.ports import TemplateStore
from sandlot.program import SANDLOT

PATIENCE_S = 25.0  # the oldest SDKs give up after 30 s
LOOK_S = 1.0
REASON_LENGTH = 300
SHORTEST_RETRY_S, LONGEST_RETRY_S = 5, 120


class TemplateLookup:
    def __init__(self, templates: TemplateStore, missing: MissingTemplates) -> None:
        self._templates, self._missing = templates, missing

    async def find(self, team_id: str, ref: str, patience_s: float = PATIENCE_S) -> Template:
        """A template with content. Raises `NotFound`, and `NotReadyYet` if it is still being built after this time."""
        template = await self._templates.resolve(team_id, ref)
        if template is not None and _has_content(template):
            return template
        name = self._missing.name_of(ref)
        if name is not None and (template is None or template.name == name):
            return await self._stock(team_id, _with_tag_of(ref, name), name, patience_s)
        if template is not None:
            raise NotFound(
                f"template {ref!r} has no finished build tagged 'default'; build it, or name a tag: {ref}:tag"
            )
        raise NotFound(
            self._missing.refusal(ref)
            or f"template {ref!r} not found; `{SANDLOT} template list` shows the ones there are"
        )

    async def _stock(self, team_id: str, ref: str, name: str, patience_s: float) -> Template:
        """Looked up again and again: it can be used a little before all of its build is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        stock: StockTemplate | None = None
        while True:
            template = await self._templates.resolve(team_id, ref)
            if template is not None and _has_content(template):
                return template
            if stock is not None and stock.state == "ready":
                raise NotFound(f"template {ref!r} not found, although {name!r} was built; is its tag right?")
            if stock is not None and (stock.state == "failed" or loop.time() >= deadline):
                raise _not_ready(stock)
            stock = await self._missing.wait(name, max(0.0, min(LOOK_S, deadline - loop.time())))


def _has_content(template: Template) -> bool:
    return bool(template.layers) or template.checkpoint is not None


def _with_tag_of(ref: str, name: str) -> str:
    _, colon, tag = ref.partition(":")
    return f"{name}{colon}{tag}"


def _not_ready(stock: StockTemplate) -> NotReadyYet:
    watch = f"to watch it: {SANDLOT} template build --stock {stock.name}"
    if stock.state == "failed":
        reason = (stock.problem or "")[-REASON_LENGTH:]
        return NotReadyYet(
            f"the stock template {stock.name!r} could not be built: {reason}. The next request tries again; {watch}",
            retry_after_s=LONGEST_RETRY_S,
        )
    left = stock.remaining_s
    about = f"ready in about {spoken(left)}" if left else "ready soon"
    last = f" (the last attempt failed: {stock.problem[-REASON_LENGTH:]})" if stock.problem else ""
    return NotReadyYet(
        f"the stock template {stock.name!r} is being built for its first use{last}: begun {spoken(stock.seconds or 0)} ago, "
        f"{about}. Try again then; {watch}",
        retry_after_s=min(max(left or 0, SHORTEST_RETRY_S), LONGEST_RETRY_S),
    )


def spoken(seconds: int) -> str:
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"
