"""The template routes: what sandboxes can be made from. `builds` makes them, `tags` names their builds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from sandlot.engine.api.builds import builder_of
from sandlot.engine.api.deps import Asking, Deps, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.api.requests import Body
from sandlot.engine.api.responses import Alias, TemplateOut, TemplateWithBuilds, is_public
from sandlot.engine.core.errors import InvalidRequest, NotFound
from sandlot.engine.core.model import Template
from sandlot.program import SANDLOT

router = APIRouter(tags=["templates"])

PAGE = 100
Ref = Annotated[str, Path(max_length=256, description="A template's id or name.")]


async def _find(deps: Deps, caller: Asking, ref: str) -> Template:
    template = None if "\x00" in ref else await deps.templates.resolve(caller.team.id, ref)
    if template is None:
        raise NotFound(f"template {ref!r} not found; `{SANDLOT} template list` shows the ones there are")
    return template


async def _all(deps: Deps, caller: Asking) -> Sequence[Template]:
    return sorted(await deps.templates.list(caller.team.id), key=lambda template: template.id)


@router.get("/templates", responses=problems())
async def list_all(deps: Given, caller: Asking, teamID: str | None = None) -> list[TemplateOut]:
    """The team's templates and the built-in ones."""
    return [TemplateOut.of(template) for template in await _all(deps, caller)]


@router.get("/v2/templates", responses=problems())
async def list_page(
    deps: Given,
    caller: Asking,
    response: Response,
    teamID: str | None = None,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    nextToken: Annotated[str | None, Query(max_length=256)] = None,
) -> list[TemplateOut]:
    """The same, in pages by id."""
    rest = [template for template in await _all(deps, caller) if nextToken is None or template.id > nextToken]
    if len(rest) > limit:
        response.headers["X-Next-Token"] = rest[limit - 1].id
    return [TemplateOut.of(template) for template in rest[:limit]]


@router.get("/default-templates", responses=problems())
async def list_built_in(deps: Given, caller: Asking) -> list[TemplateOut]:
    """The templates that come with the server."""
    return [TemplateOut.of(template) for template in await _all(deps, caller) if template.team_id is None]


@router.get("/templates/aliases/{alias}", responses=problems(403, 404))
async def find_alias(alias: Ref, deps: Given, caller: Asking) -> Alias:
    """Which template has this name."""
    template = await _find(deps, caller, alias)
    return Alias(templateID=template.id, public=is_public(template))


@router.get("/templates/{templateID}", responses=problems(404))
async def get(templateID: Ref, deps: Given, caller: Asking) -> TemplateWithBuilds:
    """One template and its builds."""
    template = await _find(deps, caller, templateID)
    return TemplateWithBuilds.of(template, await deps.builder.builds(template.id) if deps.builder else ())


class Change(Body):
    public: bool | None = None


class Changed(BaseModel):
    names: list[str]


@router.patch("/v2/templates/{templateID}", responses=problems(404))
async def change(templateID: Ref, body: Change, deps: Given, caller: Asking) -> Changed:
    """Let every team of this server use a template, or no longer."""
    template = await builder_of(deps).catalog.publish(caller.team.id, templateID, body.public)
    return Changed(names=[template.name])


@router.patch("/templates/{templateID}", responses=problems(404), include_in_schema=False)
async def change_legacy(templateID: Ref, body: Change, deps: Given, caller: Asking) -> Changed:
    """The same for older clients."""
    return await change(templateID, body, deps, caller)


@router.delete("/templates/{templateID}", status_code=204, responses=problems(404))
async def delete(templateID: Ref, deps: Given, caller: Asking) -> None:
    """Delete a template that no sandbox uses, or a snapshot. Built-in templates stay."""
    if "\x00" not in templateID and await deps.control.snapshots.delete(caller.team.id, templateID):
        return
    template = await _find(deps, caller, templateID)
    if template.team_id is None:
        raise InvalidRequest(f"template {template.name!r} cannot be deleted: it comes with the server")
    await builder_of(deps).catalog.delete(caller.team.id, templateID)
