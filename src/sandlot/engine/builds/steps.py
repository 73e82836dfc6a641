"""Carries out the steps of one build, from what is cached as far as that goes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sandlot.engine.builds.context import MOST_LAYERS, Context, chained
from sandlot.engine.core.errors import EngineError, StepFailed
from sandlot.engine.core.model import LayerResult, NetworkPolicy, Resources, Step, StepRun
from sandlot.engine.core.ports import BuildRunner, Uploads

_MODE = re.compile(r"[0-7]{3,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What one step runs in, and what it may use."""

    runtime: str
    resources: Resources
    network: NetworkPolicy
    timeout_s: float


class Steps:
    """The steps of one build, one after another. `hold` keeps its machines from cleanup, by name."""

    def __init__(
        self,
        *,
        team_id: str,
        cache_scope: str,  # builds of another scope never find what these steps make
        build_runner: BuildRunner,
        uploads: Uploads,
        limits: StepLimits,
        hold: Callable[[str], AbstractContextManager[None]],
        log: Callable[[str, str, str], None],  # message, level, step
    ) -> None:
        self._team_id, self._scope, self._build_runner, self._uploads = team_id, cache_scope, build_runner, uploads
        self._limits, self._hold, self._log = limits, hold, log
        self._forced = False
        self.cached = 0

    def force(self) -> None:
        """Run every step from here on, whatever the cache has."""
        self._forced = True

    async def apply(self, context: Context, number: int, step: Step) -> Context:
        """The context after one step. Raises `StepFailed` with a message that says what failed."""
        self._forced = forced = self._forced or step.force
        if step.type == "ENV":
            return context.with_variables(step.args)
        handlers = {"RUN": self._run, "COPY": self._copy, "WORKDIR": self._workdir, "USER": self._user}
        if step.type not in handlers:
            raise StepFailed(f"there is no step {step.type[:40]!r}; known are RUN, COPY, WORKDIR, USER and ENV")
        return await handlers[step.type](context, str(number), step, forced)

    # Each computes the key of what it is about to do; the key holds all that can change the result.

    async def _run(self, context: Context, number: str, step: Step, forced: bool) -> Context:
        if not step.args or not step.args[0].strip():
            raise StepFailed("RUN requires a command argument")
        command, user = step.args[0], (step.args[1] if len(step.args) > 1 and step.args[1] else context.user)
        workdir = context.workdir if user == context.user or context.workdir else None
        about = ("RUN", command, user, workdir, sorted(context.env.items()), self._limits.network.allow_internet)

        async def run() -> LayerResult:
            command_run = StepRun(
                layers=context.layers,
                command=command,
                user=user,
                workdir=workdir,
                env=context.env,
                runtime=self._limits.runtime,
                resources=self._limits.resources,
                network=self._limits.network,
                timeout_s=self._limits.timeout_s,
            )
            machine_id = f"b{secrets.token_hex(10)}"
            with self._hold(machine_id):
                try:
                    return await self._build_runner.run(
                        machine_id, command_run, lambda line, level: self._log(line, level, number)
                    )
                except StepFailed as error:
                    raise StepFailed(f"failed to run command '{command}': {error}") from error

        return await self._cached_or_run(context, number, f"RUN {command}", about, run, forced)

    async def _copy(self, context: Context, number: str, step: Step, forced: bool) -> Context:
        if len(step.args) < 2:
            raise StepFailed("COPY requires a local path and a container path argument")
        if not step.files_hash:
            raise StepFailed("COPY requires files hash to be set")
        source, target, owner, mode = (*step.args, "", "")[:4]
        if mode and not _MODE.fullmatch(mode):
            raise StepFailed(f"COPY: {mode[:20]!r} is not a mode; write it in octal, as in 755")
        user = owner or context.user
        archive = self._uploads.path(self._team_id, step.files_hash)
        try:
            digest = self._uploads.digest(self._team_id, step.files_hash)
        except EngineError as error:
            raise StepFailed(f"COPY {source}: {error}") from error
        act = {
            "act": "copy",
            "source": source,
            "target": target if target != "~" and not target.startswith("~/") else context.home + target[1:],
            "owner": user if ":" in user else f"{user}:{user}",
            "mode": mode,
            "workdir": context.directory,
        }
        about = ("COPY", digest, sorted(act.items()))

        async def run() -> LayerResult:
            return await self._edit_files(context, {**act, "archive": str(archive)})

        return await self._cached_or_run(context, number, f"COPY {source} {target}", about, run, forced)

    async def _workdir(self, context: Context, number: str, step: Step, forced: bool) -> Context:
        if not step.args or not step.args[0]:
            raise StepFailed("WORKDIR requires a path argument")
        path = context.path(step.args[0])
        act = {"act": "workdir", "path": path, "user": context.user}

        async def run() -> LayerResult:
            return await self._edit_files(context, act)

        after = await self._cached_or_run(context, number, f"WORKDIR {path}", sorted(act.items()), run, forced)
        return replace(after, workdir=path)

    async def _user(self, context: Context, number: str, step: Step, forced: bool) -> Context:
        if not step.args or not step.args[0]:
            raise StepFailed("USER requires a username argument")
        user = step.args[0].partition(":")[0]
        act = {"act": "user", "user": user}

        async def run() -> LayerResult:
            return await self._edit_files(context, act)

        after = await self._cached_or_run(context, number, f"USER {user}", sorted(act.items()), run, forced)
        home = after.home if user != context.user else context.home
        return replace(after, user=user, home=home)

    async def prepare(self, context: Context, user: str) -> Context:
        """Make an image that was not made for sandboxes fit for them."""
        act = {"act": "provision", "user": user}

        async def run() -> LayerResult:
            return await self._edit_files(context, act)

        return await self._cached_or_run(context, "base", "preparing the image", sorted(act.items()), run, False)

    async def home_of(self, context: Context, user: str) -> str:
        """The home directory of a user of the image."""
        key = chained(context.key, "home", user)
        known = self._build_runner.cached_step(key)
        if known is None or known.home is None:
            known = await self._edit_files(context, {"act": "look", "user": user})
            self._build_runner.cache_step(key, known)
        return known.home or "/"

    async def _edit_files(self, context: Context, act: Mapping[str, object]) -> LayerResult:
        try:
            return await self._build_runner.edit_files(context.layers, [act], self._limits.resources.disk_mb)
        except StepFailed as error:
            raise StepFailed(str(error).partition(":")[2]) from error

    async def _joined(self, context: Context, number: str) -> Context:
        """The same files in one layer. The key stays: it says what is in there, not how it is kept."""
        key = chained(context.key, "joined")
        known = self._build_runner.cached_step(key)
        if known is None or known.layer is None:
            self._log(
                f"[{number}] joining {len(context.layers)} layers into one: more cannot be mounted", "info", number
            )
            known = await self._build_runner.join(context.layers)
            self._build_runner.cache_step(key, known)
        return replace(context, layers=(known.layer,) if known.layer else ())

    async def _cached_or_run(
        self,
        context: Context,
        number: str,
        title: str,
        about: object,
        run: Callable[[], Awaitable[LayerResult]],
        forced: bool,
    ) -> Context:
        if len(context.layers) >= MOST_LAYERS:
            context = await self._joined(context, number)
        key = chained(context.key, self._scope, about)
        known = None if forced else self._build_runner.cached_step(key)
        line = title if len(title) <= 500 else f"{title[:500]}…"
        if known is not None:
            self.cached += 1
            self._log(f"[{number}] CACHED {line}", "info", number)
        else:
            self._log(f"[{number}] {line}", "info", number)
            known = await run()
            self._build_runner.cache_step(key, known)
        # The layer is part of what follows: a step that was run again has another, and so have all after it.
        after = context.after(chained(key, known.layer), known)
        return replace(after, home=known.home) if known.home else after
