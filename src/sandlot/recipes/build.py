"""Builds templates from recipes through the official SDK: what works here works with any server that speaks E2B."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import httpx
from e2b import AsyncSandbox, AsyncTemplate, CommandExitException, wait_for_timeout

from sandlot import tarfiles
from sandlot.recipes import dockerfiles, stock
from sandlot.recipes.connection import Connection
from sandlot.recipes.dockerfiles import Stage
from sandlot.recipes.recipe import Recipe, RecipeFailed
from sandlot.recipes.stock import StockNotes

Output = Callable[[str], None]  # a line of the build log

STAGES = ".sandlot-stages"  # in the context: what was copied from earlier stages
STAGE_ARCHIVE = "/tmp/.sandlot-stage.tar"
STAGE_TIMEOUT_S = 600
SMOKE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    build_args: Sequence[str] = ()
    tags: Sequence[str] = ()
    no_cache: bool = False
    output: Output = lambda line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTemplate:
    template_id: str
    build_id: str
    name: str
    seconds: float


async def build(connection: Connection, recipe: Recipe, options: Options | None = None) -> BuiltTemplate:
    """Build every stage of the recipe, the last one under its name. Raises `RecipeFailed` with the step's own message."""
    options = options or Options()
    began = time.monotonic()
    stages = dockerfiles.stages(dockerfiles.with_arguments(recipe.dockerfile, options.build_args))
    templates: dict[str, str] = {}  # of the stages so far, by name and by number
    async with _context(recipe, copied=len(stages) > 1) as context:
        for number, stage in enumerate(stages[:-1]):
            name = f"{_alias(recipe.name)}-stage-{stage.name or number}".lower()
            part = replace(recipe, name=name, start_cmd=None, ready_cmd=None)
            await _build_stage(connection, part, stage, templates, context, replace(options, tags=()))
            templates |= {key.lower(): name for key in (stage.name, str(number)) if key}
        info = await _build_stage(connection, recipe, stages[-1], templates, context, options)
    return BuiltTemplate(
        template_id=info.template_id,
        build_id=info.build_id,
        name=recipe.name,
        seconds=round(time.monotonic() - began, 2),
    )


async def build_stock(
    connection: Connection, name: str, notes: StockNotes, options: Options | None = None
) -> BuiltTemplate:
    """Build a stock template, run its smoke commands, let every team use it, and note its recipe.

    A stock template that it is built upon is built by the server when it is missing. Raises `RecipeFailed`.
    """
    options = options or Options()
    recipe, digest = stock.read(name), stock.digest(name)
    built = await build(connection, recipe, options)
    ref = ":".join((recipe.name, *options.tags[:1]))  # a build with tags is not the default one
    await _smoke(connection, ref, recipe.smoke, options.output)
    await connection.publish(built.template_id)
    if options.build_args:  # built in somebody's own way: not to be replaced when the recipe changes
        notes.remove(name)
    else:
        notes.put(name, digest)
    return built


@asynccontextmanager
async def _context(recipe: Recipe, *, copied: bool) -> AsyncIterator[Path]:
    """The build context; a copy of it if something has to be put beside what is there."""
    if not recipe.extra and not copied:
        yield recipe.context
        return
    with tempfile.TemporaryDirectory(prefix="sandlot-context-") as name:
        context = Path(name) / "context"
        await asyncio.to_thread(_copy_context, recipe, context)
        yield context


def _copy_context(recipe: Recipe, context: Path) -> None:
    ignore = shutil.ignore_patterns(STAGES, "__pycache__")
    shutil.copytree(recipe.context, context, symlinks=True, ignore=ignore)
    for key, source in recipe.extra.items():
        if not source.is_dir():
            raise RecipeFailed(f"the context directory {source} of {recipe.name!r} is missing")
        shutil.copytree(source, context / key, symlinks=True, ignore=ignore)


async def _build_stage(
    connection: Connection,
    recipe: Recipe,
    stage: Stage,
    templates: Mapping[str, str],
    context: Path,
    options: Options,
) -> Any:
    dockerfile = await _with_stages(connection, stage, templates, context)
    with _translated(f"{recipe.name} could not be built"):
        template: Any = AsyncTemplate(file_context_path=str(context)).from_dockerfile(dockerfile)
        if recipe.start_cmd:
            template = template.set_start_cmd(recipe.start_cmd, recipe.ready_cmd or wait_for_timeout(20_000))
        elif recipe.ready_cmd:
            template = template.set_ready_cmd(recipe.ready_cmd)
        return await AsyncTemplate.build(
            template,
            recipe.name,
            tags=list(options.tags) or None,
            cpu_count=recipe.cpu_count,
            memory_mb=recipe.memory_mb,
            skip_cache=options.no_cache,
            on_build_logs=lambda entry: None if entry.level == "debug" else options.output(entry.message),
            **connection.params(),
        )


def _alias(name: str) -> str:
    return name.rpartition("/")[2].partition(":")[0]


async def _with_stages(connection: Connection, stage: Stage, templates: Mapping[str, str], context: Path) -> str:
    """The stage with what it names of earlier ones: templates to build upon, and files to COPY from the context."""
    local = {}
    for number, copied in enumerate(dockerfiles.stage_copies(stage.text)):
        template = templates.get(copied.stage.lower())
        if template is None:
            raise RecipeFailed(
                f"COPY --from={copied.stage}: only earlier stages of the same Dockerfile can be copied from"
            )
        paths = [Path(STAGES) / f"{copied.stage}-{number}-{index}" for index, _ in enumerate(copied.sources)]
        local[copied] = [
            (path / await _fetch(connection, template, source, context / path)).as_posix()
            for source, path in zip(copied.sources, paths, strict=True)
        ]
    return dockerfiles.with_stage_templates(dockerfiles.with_local_copies(stage.text, local), templates)


async def _fetch(connection: Connection, template: str, source: str, target: Path) -> str:
    """Copy a file or directory of a finished stage into the directory; returns its name there."""
    parent, leaf = os.path.split("/" + source.strip("/"))
    pack = f"tar -C {shlex.quote(parent)} -cf {STAGE_ARCHIVE} -- {shlex.quote(leaf or '.')}"
    with tempfile.TemporaryFile() as file:
        with _translated(f"COPY --from: {source} could not be read from the earlier stage"):
            async with _sandbox(connection, template, STAGE_TIMEOUT_S) as sandbox:
                await sandbox.commands.run(pack, user="root", timeout=STAGE_TIMEOUT_S)
                async with await sandbox.files.read(STAGE_ARCHIVE, format="stream", user="root") as chunks:
                    async for chunk in chunks:
                        file.write(chunk)
        try:
            await asyncio.to_thread(_extract, file, target)
        except tarfile.TarError as error:
            raise RecipeFailed(f"COPY --from: {source} of the earlier stage cannot be unpacked: {error}") from error
    return leaf


def _extract(file: IO[bytes], target: Path) -> None:
    file.seek(0)
    target.mkdir(parents=True)
    with tarfile.open(fileobj=file) as packed:
        tarfiles.extract(packed, target, links_may_leave=True)


async def _smoke(connection: Connection, template: str, commands: Sequence[str], output: Output) -> None:
    """Run the commands that prove that the template works."""
    if not commands:
        return
    problem = f"{template} was built, but does not work"
    with _translated(problem):
        async with _sandbox(connection, template, SMOKE_TIMEOUT_S) as sandbox:
            for command in commands:
                with _translated(f"{problem}: {command!r}"):
                    await sandbox.commands.run(command, timeout=SMOKE_TIMEOUT_S)
    output(f"{template}: {len(commands)} smoke commands passed")


@asynccontextmanager
async def _sandbox(connection: Connection, template: str, timeout_s: int) -> AsyncIterator[AsyncSandbox]:
    sandbox = await AsyncSandbox.create(template, timeout=timeout_s, **connection.params())
    try:
        yield sandbox
    finally:
        await sandbox.kill()


@contextmanager
def _translated(problem: str) -> Iterator[None]:
    """Raise `RecipeFailed` for the errors of the SDK and of its transports."""
    try:
        yield
    except CommandExitException as error:
        output = (error.stderr or error.stdout).strip()[-500:]
        raise RecipeFailed(f"{problem}: exit status {error.exit_code}: {output}") from error
    except Exception as error:
        # The SDK raises bare `Exception` here and there, and `ValueError` for what a Dockerfile has wrong.
        foreign = type(error).__module__.partition(".")[0] in ("e2b", "pyqwest", "connectrpc")
        if foreign or type(error) is Exception or isinstance(error, (ValueError, OSError, httpx.HTTPError)):
            raise RecipeFailed(f"{problem}: {error}") from error
        raise
