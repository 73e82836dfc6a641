"""Builds: the recipe, its steps, the result of a step, and the content of a finished build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from sandlot.engine.core.model.machine import Resources
from sandlot.engine.core.model.network import NetworkPolicy
from sandlot.engine.core.model.template import Template


class BuildStatus(StrEnum):
    """Where a build is. E2B's own words."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction of a recipe, as the caller sent it."""

    type: str  # RUN, COPY, WORKDIR, USER or ENV
    args: tuple[str, ...] = ()
    force: bool = False  # run this and all that follow, whatever the cache has
    files_hash: str | None = None  # COPY: the uploaded archive


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """What a private registry asks for; lives as long as the build, and is never stored or shown."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmazonLogin:
    """A key for Amazon's registries, to be traded for what such a registry asks for; kept as little as that."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to build: where to begin, the steps, and what must run at the end."""

    from_image: str | None = None
    from_template: str | None = None
    login: RegistryLogin | AmazonLogin | None = None
    force: bool = False
    steps: tuple[Step, ...] = ()
    start_cmd: str | None = None
    ready_cmd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The result of a finished build: all that a template needs to start sandboxes."""

    layers: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "user"
    workdir: str = "/home/user"
    start_cmd: str | None = None
    ready_cmd: str | None = None
    runtime: str | None = None
    checkpoint: str | None = None
    node: str | None = None
    recipe_digest: str = ""
    envd_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One attempt to build a template's content. `problem_step`: "base", "finalize", or the number of a step from 1."""

    id: str
    template_id: str
    team_id: str
    status: BuildStatus
    tags: tuple[str, ...]
    resources: Resources
    created_at: datetime
    updated_at: datetime
    revision: int = 0  # how often the row was written: a write names the one it read
    finished_at: datetime | None = None
    content: Content | None = None
    problem: str | None = None
    problem_step: str | None = None


def built(template: Template, build: Build) -> Template:
    """The template as this build of it is."""
    content = build.content
    if content is None:
        return template
    return replace(
        template,
        layers=content.layers,
        build_id=build.id,
        runtime=content.runtime,
        resources=build.resources,
        env=content.env,
        start_cmd=content.start_cmd,
        ready_cmd=content.ready_cmd,
        default_user=content.user,
        default_workdir=content.workdir,
        recipe_digest=content.recipe_digest,
        envd_version=content.envd_version,
        checkpoint=content.checkpoint,
        node=content.node,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A command of a build: what a short-lived machine over these layers is to run."""

    layers: tuple[str, ...]
    command: str
    user: str
    workdir: str | None
    env: Mapping[str, str]
    runtime: str
    resources: Resources
    network: NetworkPolicy
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """A new layer, or None if nothing changed; and the home directory of the user asked about."""

    layer: str | None
    home: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image name stands for here: a stock template, or layers that were imported."""

    description: str  # what is used, in a sentence for the build log
    template: str | None = None
    layers: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    workdir: str | None = None
