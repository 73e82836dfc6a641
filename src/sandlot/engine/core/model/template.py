"""Templates: what sandboxes start from, and the tags that name their builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sandlot.engine.core.model.machine import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a sandbox starts from. `layers` are names below the data directory's `layers/`, bottom first."""

    id: str
    team_id: str | None  # None: built in, everybody's
    name: str
    layers: tuple[str, ...]
    build_id: str
    created_at: datetime
    updated_at: datetime
    runtime: str | None = None  # None: the server's default
    resources: Resources = field(default_factory=Resources)
    env: Mapping[str, str] = field(default_factory=dict)
    start_cmd: str | None = None
    ready_cmd: str | None = None
    default_user: str = "user"
    default_workdir: str = "/home/user"
    public: bool = False
    recipe_digest: str = ""  # what it was built from; a new recipe gives a new digest
    envd_version: str = ""
    checkpoint: str | None = None  # the saved state that its sandboxes begin with; None: they boot
    source: str | None = None  # the sandbox it is a snapshot of; None: it was built
    node: str | None = None  # the node that has the saved state
    spawn_count: int = 0
    last_spawned_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for one build of a template."""

    template_id: str
    tag: str
    build_id: str
    created_at: datetime
