"""The routes about templates that come with the server: how far each is, and having one built. They are Sandlot's own."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from sandlot.engine.api.deps import Asking, Deps, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.control.stock_templates import StockTemplate
from sandlot.engine.core.errors import Forbidden, NotFound

router = APIRouter(tags=["templates"])

Stock = Annotated[str, Path(max_length=256, description="Its name, or one that means it.")]


class StockOut(BaseModel):
    name: str
    state: Literal["absent", "building", "failed", "ready"]
    seconds: int | None = None
    remaining_s: int | None = None
    doing: str | None = None
    problem: str | None = None


class StockLog(StockOut):
    lines: list[str]
    next: int


def _name(deps: Deps, wanted: str) -> str:
    name = deps.stock.name_of(wanted)
    if name is None:
        known = ", ".join(each.name for each in deps.stock.all())
        raise NotFound(f"there is no stock template {wanted!r}; there are: {known or 'none'}")
    return name


def _shown(found: StockTemplate) -> StockOut:
    return StockOut(**dataclasses.asdict(found))


@router.get("/stock-templates", responses=problems())
async def list_stock(deps: Given, caller: Asking) -> list[StockOut]:
    """Templates that come with the server, and how far their builds are."""
    return [_shown(each) for each in deps.stock.all()]


@router.post("/stock-templates/{name}", status_code=202, responses=problems(403, 404))
async def begin(name: Stock, deps: Given, caller: Asking) -> StockOut:
    """Have one built, unless that is under way."""
    if caller.team.id != deps.operator:
        raise Forbidden("only the first team of the server has its stock templates built; ask its operator")
    return _shown(deps.stock.begin(_name(deps, name)))


@router.get("/stock-templates/{name}", responses=problems(403, 404))
async def follow(
    name: Stock,
    deps: Given,
    caller: Asking,
    after: Annotated[int, Query(ge=0, le=2**31, description="`next` of the answer before.")] = 0,
) -> StockLog:
    """How far one is, and what its build logged since."""
    if caller.team.id != deps.operator:
        raise Forbidden("only the first team of the server sees how its stock templates are built")
    found = _name(deps, name)
    lines, count = deps.stock.lines(found, after)
    state = next(each for each in deps.stock.all() if each.name == found)
    return StockLog(**dataclasses.asdict(state), lines=list(lines), next=count)
