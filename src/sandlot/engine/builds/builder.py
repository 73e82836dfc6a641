"""The builder: takes requests for builds, runs a few at a time, and says how each one goes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sandlot.engine.builds.build_log import MOST_LINES, BuildLog
from sandlot.engine.builds.context import Context, chained
from sandlot.engine.builds.steps import Limits, Steps
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.builds.template_names import DEFAULT_TAG, parse_name, parse_tags
from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest, NotFound, StepFailed
from sandlot.engine.core.model import (
    Build,
    BuildStatus,
    Content,
    LogEntry,
    NetworkPolicy,
    Recipe,
    Resources,
    Template,
    built,
)
from sandlot.engine.core.ports import BuildRunner, BuildStore, Clock, Images, TemplateStore, Uploads

log = logging.getLogger(__name__)
T = TypeVar("T")

BASE, FINALIZE = "base", "finalize"  # what E2B calls the parts of a build that are no step
DEFAULT_IMAGE = "e2bdev/base"
MOST_STEPS = 500
FLUSH_S = 1.0
AT_ONCE_S = 0.15
INTERRUPTED = "the server stopped while this was being built; nothing of the build was kept but its finished steps: build it again"


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
class Settings:
    """What templates of this server run on."""

    runtime: str
    node: str
    envd_version: str


@dataclass(slots=True, kw_only=True)
class _Active:
    build_log: BuildLog
    task: asyncio.Task[None] | None = None


class _Failed(Exception):
    """A build ended at a step; the cause says why."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class _Missing(Exception):
    """The template to build upon is not there, or has no content yet."""

    def __init__(self, ref: str, problem: str) -> None:
        super().__init__(problem)
        self.ref = ref


class Builder:
    """Methods that take `team_id` see only that team's templates."""

    def __init__(
        self,
        *,
        templates: TemplateStore,
        builds: BuildStore,
        catalog: TemplateCatalog,
        build_runner: BuildRunner,
        images: Images,
        uploads: Uploads,
        clock: Clock,
        hold: Callable[[str], AbstractContextManager[None]],
        settings: Settings,
        limits: BuildLimits,
    ) -> None:
        self._templates, self._builds, self.catalog = templates, builds, catalog
        self._build_runner, self._images, self.uploads = build_runner, images, uploads
        self._clock, self._hold, self._settings, self._limits = clock, hold, settings, limits
        self._places = asyncio.Semaphore(limits.at_once)
        self._active: dict[str, _Active] = {}
        self._on_ready: Callable[[Sequence[str]], Awaitable[None]] | None = None
        self._make: Callable[[str, Callable[[str], None]], Awaitable[bool]] | None = None

    def when_missing(self, make: Callable[[str, Callable[[str], None]], Awaitable[bool]]) -> None:
        """Have this make a template that is not there, and tell what it does. False: it does not know the template."""
        self._make = make

    def on_ready(self, act: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """Do this with the layers of every build that is finished, before anybody is told."""
        self._on_ready = act

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
        """Room for a new build of a template, which is made if there is none of that name."""
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
        await self._builds.put(build)
        if free_disk_mb is not None and free_disk_mb > resources.disk_mb:
            await self._tell_of_disk(build, free_disk_mb)
        return template, build

    async def _tell_of_disk(self, build: Build, wanted_mb: int) -> None:
        """Free disk is a wish, which E2B grants as far as it can."""
        build_log = BuildLog(build.id, self._builds, self._clock)
        given = f"sandboxes of this server get {build.resources.disk_mb} MiB (SANDLOT_SANDBOX_DISK_MB)"
        build_log.tell(f"{wanted_mb} MiB of free disk were asked for; {given}", "warn")
        await build_log.flush()

    def _resources(self, cpu_count: int | None, memory_mb: int | None) -> Resources:
        limits = self._limits
        cpus = cpu_count if cpu_count is not None else limits.sandbox.cpu_count
        memory = memory_mb if memory_mb is not None else limits.sandbox.memory_mb
        if not 1 <= cpus <= limits.most_cpus:
            raise InvalidRequest(f"cpuCount must be from 1 to {limits.most_cpus}, not {cpus}")
        if not 128 <= memory <= limits.most_memory_mb:
            raise InvalidRequest(f"memoryMB must be from 128 to {limits.most_memory_mb}, not {memory}")
        return replace(limits.sandbox, cpu_count=cpus, memory_mb=memory)

    async def _template(self, team_id: str, alias: str, resources: Resources) -> Template:
        found = await self._templates.resolve(team_id, alias)
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
        await self._templates.put(template)
        return template

    async def start(self, team_id: str, template_id: str, build_id: str, recipe: Recipe) -> None:
        """Begin a build that was requested; it goes on by itself."""
        template = await self.catalog.own(team_id, template_id)
        told = len(await self._builds.logs(build_id, offset=0, limit=MOST_LINES))  # when it was requested
        build = await self.get(team_id, template_id, build_id)
        if build.status is not BuildStatus.WAITING or build.id in self._active:
            raise Conflict(f"build {build_id} has already been started; request another to build again")
        if len(recipe.steps) > MOST_STEPS:
            raise InvalidRequest(f"a recipe may have {MOST_STEPS} steps, not {len(recipe.steps)}")
        active = self._active[build.id] = _Active(build_log=BuildLog(build.id, self._builds, self._clock, told))
        building = replace(build, status=BuildStatus.BUILDING, updated_at=self._clock())
        await self._builds.put(building)
        active.task = asyncio.create_task(self._attend(template, building, recipe, active), name=f"build {build.id}")
        # A build that comes from the cache is done at once: who asks next learns so, and need not ask again later.
        await asyncio.wait({active.task}, timeout=AT_ONCE_S)

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
        active = self._active.get(build.id)
        if active is not None:
            await active.build_log.flush()
        return await self._builds.logs(build.id, offset=offset, limit=limit)

    # Running

    async def _attend(self, template: Template, build: Build, recipe: Recipe, active: _Active) -> None:
        """One build from the queue to its end, whatever that is."""
        flushing = asyncio.create_task(self._flush_regularly(active.build_log))
        try:
            if self._places.locked():
                active.build_log.tell(
                    f"waiting: {self._limits.at_once} builds are running, which is all this server runs at once"
                )
            await self._finish(template, build, await self._through(template, build, recipe, active.build_log))
        except _Failed as failure:
            await self._fail(build, active.build_log, failure.step, str(failure))
        except TimeoutError:
            await self._fail(
                build, active.build_log, FINALIZE, f"the build took longer than {self._limits.build_s:g} s"
            )
        except asyncio.CancelledError:
            await self._fail(build, active.build_log, None, INTERRUPTED)
            raise
        except Exception:
            log.exception("build %s of template %s failed", build.id, template.name)
            await self._fail(
                build, active.build_log, None, "the build failed because of a fault of the server; its log has more"
            )
        finally:
            flushing.cancel()
            await active.build_log.flush()
            del self._active[build.id]

    async def _through(self, template: Template, build: Build, recipe: Recipe, build_log: BuildLog) -> Content:
        """Build in a place of the queue. What is made for this build first may need a place itself: none is kept meanwhile."""
        try:
            return await self._in_place(template, build, recipe, build_log)
        except _Missing as missing:
            if not await _at(BASE, self._made(missing.ref, build_log)):
                raise _Failed(BASE, str(missing)) from missing
        try:
            return await self._in_place(template, build, recipe, build_log)
        except _Missing as missing:
            raise _Failed(BASE, str(missing)) from missing

    async def _in_place(self, template: Template, build: Build, recipe: Recipe, build_log: BuildLog) -> Content:
        async with self._places, asyncio.timeout(self._limits.build_s):
            return await self._build(template, build, recipe, build_log)

    async def _made(self, ref: str, build_log: BuildLog) -> bool:
        return self._make is not None and await self._make(ref, lambda line: build_log.tell(line, "info", BASE))

    async def _flush_regularly(self, build_log: BuildLog) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await build_log.flush()

    async def _finish(self, template: Template, build: Build, content: Content) -> None:
        now = self._clock()
        ready = replace(build, content=content, updated_at=now, finished_at=now)
        # Tags before the status: who sees "ready" can create a sandbox.
        await self._builds.put(ready)
        await self.catalog.put(template, ready)
        await self._active[build.id].build_log.flush()
        if self._on_ready is not None:
            await self._on_ready(content.layers)
        await self._builds.put(replace(ready, status=BuildStatus.READY))

    async def _fail(self, build: Build, build_log: BuildLog, step: str | None, message: str) -> None:
        build_log.tell(message, "error", step or "")
        await build_log.flush()
        now = self._clock()
        await self._builds.put(
            replace(
                build,
                status=BuildStatus.ERROR,
                problem=message.replace("\0", "")[:8000],
                problem_step=step,
                updated_at=now,
                finished_at=now,
            )
        )

    async def _build(self, template: Template, build: Build, recipe: Recipe, build_log: BuildLog) -> Content:
        began = asyncio.get_running_loop().time()
        network = NetworkPolicy(allow_internet=None if self._limits.internet else False)
        wanted = build.resources
        limits = Limits(
            resources=replace(
                wanted,
                memory_mb=max(wanted.memory_mb, self._limits.memory_mb),
                disk_mb=self._limits.disk_mb,
            ),
            network=network,
            timeout_s=self._limits.step_s,
        )
        steps = Steps(
            team_id=build.team_id,
            build_runner=self._build_runner,
            uploads=self.uploads,
            limits=limits,
            hold=self._hold,
            tell=build_log.tell,
        )
        if recipe.force:
            steps.force()
        context, inherited = await _at(BASE, self._begin(build.team_id, recipe, steps, build_log))
        for number, step in enumerate(recipe.steps, 1):
            context = await _at(str(number), steps.take(context, number, step))
        content = await _at(FINALIZE, self._finalize(template, build, recipe, context, inherited, network, build_log))
        took = asyncio.get_running_loop().time() - began
        build_log.tell(f"Build finished in {took:.1f} s, {steps.cached} of {len(recipe.steps)} steps from the cache")
        return content

    async def _begin(
        self, team_id: str, recipe: Recipe, steps: Steps, build_log: BuildLog
    ) -> tuple[Context, Template | None]:
        """Where the recipe starts from, and the template it inherits commands from."""
        if recipe.from_template:
            build_log.tell(f"FROM template {recipe.from_template}", "info", BASE)
            return await self._from_template(team_id, recipe.from_template, steps)
        ref = recipe.from_image or DEFAULT_IMAGE
        build_log.tell(f"FROM {ref}", "info", BASE)
        image = await self._images.find(ref, recipe.login, lambda line, level: build_log.tell(line, level, BASE))
        build_log.tell(image.told, "info", BASE)
        if image.template is not None:
            context, _ = await self._from_template(team_id, image.template, steps)
            return replace(context, key=chained(context.key, "image")), None
        context = Context(layers=image.layers, key=chained("image", image.layers), env=image.env)
        return await steps.prepare(context, "user"), None

    async def _from_template(self, team_id: str, ref: str, steps: Steps) -> tuple[Context, Template]:
        found = await self._templates.resolve(team_id, ref)
        if found is None:
            raise _Missing(ref, f"template {ref!r} not found; `./sandlot template list` shows the ones there are")
        if found.source is not None:
            raise StepFailed(f"template {ref!r} cannot be built upon: it is a snapshot")
        if not found.layers:
            raise _Missing(ref, f"template {ref!r} cannot be built upon: it has not been built yet")
        key = chained("template", found.layers, found.default_user, found.default_workdir, sorted(found.env.items()))
        context = Context(
            layers=found.layers, key=key, user=found.default_user, workdir=found.default_workdir, env=found.env
        )
        return replace(context, home=await steps.home_of(context, found.default_user)), found

    async def _finalize(
        self,
        template: Template,
        build: Build,
        recipe: Recipe,
        context: Context,
        inherited: Template | None,
        network: NetworkPolicy,
        build_log: BuildLog,
    ) -> Content:
        start, ready = recipe.start_cmd, recipe.ready_cmd
        if not start and not ready and inherited is not None:
            start, ready = inherited.start_cmd, inherited.ready_cmd
        content = Content(
            layers=context.layers,
            env=dict(context.env),
            user=context.user,
            workdir=context.directory,
            start_cmd=start or None,
            ready_cmd=ready or None,
            recipe_digest=chained(context.key, start, ready),
            envd_version=self._settings.envd_version,
        )
        if not start and not ready:
            return content
        build_log.tell(f"Starting: {start or '(nothing)'}; ready when: {ready or '20 s have passed'}", "info", FINALIZE)
        state = f"tpl{secrets.token_hex(10)}"
        machine_id = f"b{secrets.token_hex(10)}"
        with self._hold(machine_id), self._hold(state):
            kept = await self._build_runner.finish(
                machine_id,
                built(template, replace(build, content=content)),
                self._settings.runtime,
                network,
                state,
                lambda line, level: build_log.tell(line, level, FINALIZE),
                ready_s=self._limits.ready_s,
            )
            if kept is None:
                return content
            build_log.tell("Saved the running state: sandboxes begin with it", "info", FINALIZE)
            content = replace(content, checkpoint=kept, node=self._settings.node, runtime=self._settings.runtime)
            await self._builds.put(
                replace(build, content=content)
            )  # before the name is let go: the state is somebody's
            return content

    # The server's own life

    async def recover(self) -> int:
        """Before the first request: end builds that an earlier process was running, and what it left; how many."""
        left = await self._builds.query(statuses=[BuildStatus.BUILDING])
        for build in left:
            now = self._clock()
            await self._builds.put(
                replace(
                    build, status=BuildStatus.ERROR, problem=INTERRUPTED, content=None, updated_at=now, finished_at=now
                )
            )
        await self.catalog.tidy()
        return len(left)

    async def checkpoints(self) -> set[str]:
        """Names of saved states that builds need."""
        builds = await self._builds.query(statuses=[BuildStatus.READY, BuildStatus.BUILDING])
        return {build.content.checkpoint for build in builds if build.content and build.content.checkpoint}

    async def close(self) -> None:
        """Give up the builds that run; each is marked so."""
        tasks = [active.task for active in self._active.values() if active.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _at(step: str, work: Awaitable[T]) -> T:
    """Do a part of a build; when it fails, say which part it was."""
    try:
        return await work
    except EngineError as error:
        raise _Failed(step, str(error)) from error


def _new_id() -> str:
    alphabet = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(20))
