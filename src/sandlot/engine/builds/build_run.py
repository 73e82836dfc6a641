"""One run of a build: carries out the recipe from its base over its steps to the content of a template."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from sandlot.engine.builds.build_log import BuildLog
from sandlot.engine.builds.build_settings import BuildSettings
from sandlot.engine.builds.build_states import BuildStates
from sandlot.engine.builds.context import Context, chained
from sandlot.engine.builds.steps import StepLimits, Steps
from sandlot.engine.core.errors import EngineError, StepFailed
from sandlot.engine.core.model import Build, Content, NetworkPolicy, Recipe, Template, built
from sandlot.engine.core.ports import BuildRunner, Images, TemplateStore, Uploads
from sandlot.program import SANDLOT

T = TypeVar("T")

BASE, FINALIZE = "base", "finalize"  # what E2B calls the parts of a build that are no step
DEFAULT_IMAGE = "e2bdev/base"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTools:
    """What every build of this server uses."""

    templates: TemplateStore
    runner: BuildRunner
    images: Images
    uploads: Uploads
    hold: Callable[[str], AbstractContextManager[None]]  # keeps a machine or saved state of this name from cleanup


class BuildFailed(Exception):
    """A build ended at a step; the cause says why."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class BaseMissing(Exception):
    """The template to build upon does not exist, or has no content yet."""

    def __init__(self, ref: str, problem: str) -> None:
        super().__init__(problem)
        self.ref = ref


class BuildRun:
    """`build` is the record as this run wrote it last."""

    def __init__(
        self,
        *,
        template: Template,
        build: Build,
        recipe: Recipe,
        build_log: BuildLog,
        states: BuildStates,
        tools: BuildTools,
        settings: BuildSettings,
    ) -> None:
        self.template, self.build, self.build_log = template, build, build_log
        self._recipe, self._states, self._tools, self._settings = recipe, states, tools, settings
        self._network = NetworkPolicy(allow_internet=None if settings.limits.internet else False)

    async def execute(self) -> Content:
        """Raises `BuildFailed`, and `BaseMissing` if the run can be repeated once that template exists."""
        began = asyncio.get_running_loop().time()
        recipe, steps = self._recipe, self._steps()
        if recipe.force:
            steps.force()
        context, inherited = await in_step(BASE, self._base(steps))
        for number, step in enumerate(recipe.steps, 1):
            context = await in_step(str(number), steps.apply(context, number, step))
        content = await in_step(FINALIZE, self._finalize(context, inherited))
        took = asyncio.get_running_loop().time() - began
        self.build_log.add(
            f"Build finished in {took:.1f} s, {steps.cached} of {len(recipe.steps)} steps from the cache"
        )
        return content

    def _steps(self) -> Steps:
        wanted, limits = self.build.resources, self._settings.limits
        return Steps(
            team_id=self.build.team_id,
            # The operator's own builds are the same on every instance of the machine, whatever its first team is called.
            cache_scope="" if self.build.team_id == self._settings.first_team else self.build.team_id,
            build_runner=self._tools.runner,
            uploads=self._tools.uploads,
            limits=StepLimits(
                runtime=self._settings.step_runtime,
                resources=replace(wanted, memory_mb=max(wanted.memory_mb, limits.memory_mb), disk_mb=limits.disk_mb),
                network=self._network,
                timeout_s=limits.step_s,
            ),
            hold=self._tools.hold,
            log=self.build_log.add,
        )

    async def _base(self, steps: Steps) -> tuple[Context, Template | None]:
        """Where the recipe starts from, and the template it inherits commands from."""
        recipe = self._recipe
        if recipe.from_template:
            self.build_log.add(f"FROM template {recipe.from_template}", "info", BASE)
            return await self._from_template(recipe.from_template, steps)
        ref = recipe.from_image or DEFAULT_IMAGE
        self.build_log.add(f"FROM {ref}", "info", BASE)
        image = await self._tools.images.find(ref, recipe.login, self.build_log.output(BASE))
        self.build_log.add(image.description, "info", BASE)
        if image.template is not None:
            context, _ = await self._from_template(image.template, steps)
            return replace(context, key=chained(context.key, "image")), None
        context = Context(layers=image.layers, key=chained("image", image.layers), env=image.env)
        return await steps.prepare(context, "user"), None

    async def _from_template(self, ref: str, steps: Steps) -> tuple[Context, Template]:
        found = await self._tools.templates.resolve(self.build.team_id, ref)
        if found is None:
            raise BaseMissing(ref, f"template {ref!r} not found; `{SANDLOT} template list` shows the ones there are")
        if found.source is not None:
            raise StepFailed(f"template {ref!r} cannot be built upon: it is a snapshot")
        if not found.layers:
            raise BaseMissing(ref, f"template {ref!r} cannot be built upon: it has not been built yet")
        key = chained("template", found.layers, found.default_user, found.default_workdir, sorted(found.env.items()))
        context = Context(
            layers=found.layers, key=key, user=found.default_user, workdir=found.default_workdir, env=found.env
        )
        return replace(context, home=await steps.home_of(context, found.default_user)), found

    async def _finalize(self, context: Context, inherited: Template | None) -> Content:
        start, ready = self._recipe.start_cmd, self._recipe.ready_cmd
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
        return await self._started(content) if start or ready else content

    async def _started(self, content: Content) -> Content:
        """Run the start command until it is ready; with the state saved then, where the runtime keeps memory."""
        commands = f"{content.start_cmd or '(nothing)'}; ready when: {content.ready_cmd or '20 s have passed'}"
        self.build_log.add(f"Starting: {commands}", "info", FINALIZE)
        settings = self._settings
        checkpoint, machine_id = f"tpl{secrets.token_hex(10)}", f"b{secrets.token_hex(10)}"
        with self._tools.hold(machine_id), self._tools.hold(checkpoint):
            saved = await self._tools.runner.finish(
                machine_id,
                built(self.template, replace(self.build, content=content)),
                settings.runtime,
                self._network,
                checkpoint,
                self.build_log.output(FINALIZE),
                ready_s=settings.limits.ready_s,
            )
            if saved is None:
                return content
            self.build_log.add("Saved the running state: sandboxes begin with it", "info", FINALIZE)
            content = replace(content, checkpoint=saved, node=settings.node, runtime=settings.runtime)
            # While the name is still held: from now on the row says that the saved state is in use.
            self.build = await self._states.swap(self.build, replace(self.build, content=content))
            return content


async def in_step(step: str, work: Awaitable[T]) -> T:
    """Do a part of a build; when it fails, say which part it was."""
    try:
        return await work
    except EngineError as error:
        raise BuildFailed(step, str(error)) from error
