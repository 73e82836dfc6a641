"""The routes about tags: names for builds of a template."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from sandlot.engine.api.builds import builder_of
from sandlot.engine.api.deps import Asking, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.api.requests import Body, Name

router = APIRouter(tags=["tags"])

Tags = Annotated[list[Name], Field(min_length=1, max_length=100)]


class Assign(Body):
    target: Name
    tags: Tags


class Assigned(BaseModel):
    buildID: str
    tags: list[str]


class Remove(Body):
    name: Name
    tags: Tags


class TagOut(BaseModel):
    tag: str
    buildID: str
    createdAt: datetime


@router.post("/templates/tags", status_code=201, responses=problems(404))
async def assign(body: Assign, deps: Given, caller: Asking) -> Assigned:
    """Give the build that `name:tag` means more tags."""
    build_id, tags = await builder_of(deps).catalog.assign(caller.team.id, body.target, body.tags)
    return Assigned(buildID=build_id, tags=list(tags))


@router.delete("/templates/tags", status_code=204, responses=problems(404))
async def remove(body: Remove, deps: Given, caller: Asking) -> None:
    """Take tags away. A build without any gives up its layers."""
    await builder_of(deps).catalog.unassign(caller.team.id, body.name, body.tags)


@router.get("/templates/{templateID}/tags", responses=problems(404))
async def list_tags(templateID: Annotated[str, Path(max_length=256)], deps: Given, caller: Asking) -> list[TagOut]:
    """The tags of a template and the builds they mean."""
    found = await builder_of(deps).catalog.tags(caller.team.id, templateID)
    return [TagOut(tag=tag.tag, buildID=tag.build_id, createdAt=tag.created_at) for tag in found]
