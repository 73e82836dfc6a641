"""The builder: takes requests for builds, starts them, and says how each one goes."""

from __future__ import annotations

import asyncio
import secrets
import string
import uuid
from collections.abc import Sequence
from dataclasses import replace

from sandlot.engine.builds.build_log import MOST_LINES, BuildLog
from sandlot.engine.builds.build_queue import INTERRUPTED, BuildQueue, MakeTemplate, UseLayers
from sandlot.engine.builds.build_run import BuildRun, BuildTools
from sandlot.engine.builds.build_settings import BuildSettings
from sandlot.engine.builds.build_states import BuildStates, failed, started
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.builds.template_names import DEFAULT_TAG, parse_name, parse_tags
from sandlot.engine.core.errors import Conflict, InvalidRequest, NotFound
from sandlot.engine.core.model import Build, BuildStatus, LogEntry, Recipe, Resources, Template
from sandlot.engine.core.ports import BuildStore, Clock

MOST_STEPS = 500
AT_ONCE_S = 0.15


class Builder:
    """Methods that take `team_id` see only that team's templates."""

    def __init__(
        self, *, builds: BuildStore, catalog: TemplateCatalog, tools: BuildTools, clock: Clock, settings: BuildSettings
    ) -> None:
        self._builds, self.catalog, self._tools, self.uploads = builds, catalog, tools, tools.uploads
        self._clock, self._settings = clock, settings
        self._states = BuildStates(builds)
        self._queue = BuildQueue(states=self._states, catalog=catalog, clock=clock, limits=settings.limits)

    def when_missing(self, make: MakeTemplate) -> None:
        """Have this make a template that a build needs and that does not exist, and report what it does in lines.

        It returns False if it does not know the template, and raises `StepFailed` if the template cannot be made.
        """
        self._queue.make_template = make

    def on_ready(self, use_layers: UseLayers) -> None:
        """Do this with the layers of every build that is finished, before its status says so."""
        self._queue.use_layers = use_layers

    # Requests

    async def request(
        self,
        team_id: str,
        name: str,
        *,
        tags: Sequence[str] = (),
        cpu_count: int | None = None,
        memory_mb: int | None = None,
        free_disk_mb: int | None = None,
    ) -> tuple[Template, Build]:
        """A new build of a template, to be started later; the template is added if there is none of that name."""
        reference = parse_name(name)
        wanted = (*((reference.tag,) if reference.tag else ()), *parse_tags(tags, reference.alias))
        resources = self._resources(cpu_count, memory_mb)
        template = await self._template(team_id, reference.alias, resources)
        now = self._clock()
        build = Build(
            id=str(uuid.uuid4()),
            template_id=template.id,
            team_id=team_id,
            status=BuildStatus.WAITING,
            tags=tuple(dict.fromkeys(wanted)) or (DEFAULT_TAG,),
            resources=resources,
            created_at=now,
            updated_at=now,
        )
        await self._builds.add(build)
        if free_disk_mb is not None and free_disk_mb > resources.disk_mb:
            await self._log_disk_limit(build, free_disk_mb)
        return template, build

    async def _log_disk_limit(self, build: Build, wanted_mb: int) -> None:
        """Free disk is a wish, which E2B grants as far as it can."""
        build_log = BuildLog(build.id, self._builds, self._clock)
        given = f"sandboxes of this server get {build.resources.disk_mb} MiB (SANDLOT_SANDBOX_DISK_MB)"
        build_log.add(f"{wanted_mb} MiB of free disk were asked for; {given}", "warn")
        await build_log.flush()

    def _resources(self, cpu_count: int | None, memory_mb: int | None) -> Resources:
        limits = self._settings.limits
        cpus = cpu_count if cpu_count is not None else limits.sandbox.cpu_count
        memory = memory_mb if memory_mb is not None else limits.sandbox.memory_mb
        if not 1 <= cpus <= limits.most_cpus:
            raise InvalidRequest(f"cpuCount must be from 1 to {limits.most_cpus}, not {cpus}")
        if not 128 <= memory <= limits.most_memory_mb:
            raise InvalidRequest(f"memoryMB must be from 128 to {limits.most_memory_mb}, not {memory}")
        return replace(limits.sandbox, cpu_count=cpus, memory_mb=memory)

    async def _template(self, team_id: str, alias: str, resources: Resources) -> Template:
        if alias in self._settings.reserved and team_id != self._settings.first_team:
            raise Conflict(f"{alias!r} is the name of a template that comes with the server; choose another name")
        found = await self._tools.templates.resolve(team_id, alias)
        if found is not None and found.team_id == team_id:
            if found.source is not None:
                raise Conflict(f"{alias!r} is the name of a snapshot; choose another name for the template")
            return found
        now = self._clock()
        template = Template(
            id=_new_id(),
            team_id=team_id,
            name=alias,
            layers=(),
            build_id="",
            created_at=now,
            updated_at=now,
            resources=resources,
            envd_version=self._settings.envd_version,
        )
        await self._tools.templates.put(template)
        return template

    async def start(self, team_id: str, template_id: str, build_id: str, recipe: Recipe) -> None:
        """Begin a build that was requested; it goes on by itself. Raises `Conflict` if it was started before."""
        if len(recipe.steps) > MOST_STEPS:
            raise InvalidRequest(f"a recipe may have {MOST_STEPS} steps, not {len(recipe.steps)}")
        template = await self.catalog.own(team_id, template_id)
        await self.get(team_id, template_id, build_id)
        logged = len(await self._builds.logs(build_id, offset=0, limit=MOST_LINES))  # when it was requested
        now = self._clock()
        run = BuildRun(
            template=template,
            build=await self._states.change(build_id, lambda build: started(build, now)),
            recipe=recipe,
            build_log=BuildLog(build_id, self._builds, self._clock, logged),
            states=self._states,
            tools=self._tools,
            settings=self._settings,
        )
        # A build that comes from the cache is done at once: who asks next learns so, and need not ask again later.
        await asyncio.wait({self._queue.start(run)}, timeout=AT_ONCE_S)

    # How it goes

    async def get(self, team_id: str, template_id: str, build_id: str) -> Build:
        build = await self._builds.get(build_id)
        if build is None or build.team_id != team_id or template_id not in (build.template_id, build.id):
            template = await self.catalog.own(team_id, template_id)
            if build is None or build.template_id != template.id:
                raise NotFound(f"build {build_id!r} of template {template_id!r} not found")
        return build

    async def builds(self, template_id: str) -> Sequence[Build]:
        return await self._builds.query(template_id=template_id)

    async def logs(self, build: Build, *, offset: int, limit: int) -> Sequence[LogEntry]:
        await self._queue.flush(build.id)
        return await self._builds.logs(build.id, offset=offset, limit=limit)

    async def checkpoints(self) -> set[str]:
        """Names of saved states that builds need."""
        builds = await self._builds.query(statuses=[BuildStatus.READY, BuildStatus.BUILDING])
        return {build.content.checkpoint for build in builds if build.content and build.content.checkpoint}

    # The server's own life

    async def recover(self) -> int:
        """Before the first request: end builds that an earlier process was running, and what it left; how many."""
        left = await self._builds.query(statuses=[BuildStatus.BUILDING])
        now = self._clock()
        for build in left:
            await self._states.change(build.id, lambda old: failed(old, INTERRUPTED, None, now))
        await self.catalog.tidy()
        return len(left)

    async def close(self) -> None:
        """Give up the builds that run; each is marked so."""
        await self._queue.close()


def _new_id() -> str:
    alphabet = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(20))
