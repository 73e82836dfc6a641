"""What builds of a server run on, and how much they may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot.engine.core.model import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    at_once: int = 2
    build_s: float = 3600
    step_s: float = 1800
    ready_s: float = 600
    memory_mb: int = 2048  # the least that steps get; the template's own if that is more
    disk_mb: int = 10240
    internet: bool = True
    sandbox: Resources = field(default_factory=Resources)  # what a template gets where the request does not say
    most_cpus: int = 64
    most_memory_mb: int = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """What the templates of this server run on, and the limits of its builds."""

    runtime: str
    step_runtime: str  # what commands of builds run in
    node: str
    envd_version: str
    limits: BuildLimits = field(default_factory=BuildLimits)
    reserved: frozenset[str] = frozenset()  # names of templates that come with the server
    first_team: str | None = None  # who may build those
