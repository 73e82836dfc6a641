"""Builds templates from Dockerfiles through the official SDK: what works here works with any server that speaks E2B."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandlot.cli import client, output, recipes
from sandlot.cli.output import Failure
from sandlot.cli.recipes import Recipe, Stage

if TYPE_CHECKING:
    from sandlot.settings import Settings

STAGES = ".sandlot-stages"
SMOKE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    build_args: Sequence[str] = ()
    tags: Sequence[str] = ()
    no_cache: bool = False
    quiet: bool = False


def build(settings: Settings, recipe: Recipe, options: Options) -> dict[str, Any]:
    """Build and return ids. Raises `Failure` with the step's own message."""
    client.sdk(settings)
    began = time.monotonic()
    text = recipes.with_arguments(recipe.dockerfile, options.build_args)
    stages = recipes.stages(text)
    with _context(recipe) as context:
        known: dict[str, str] = {}
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            name = recipe.name if last else f"{_plain(recipe.name)}-stage-{stage.name or number}".lower()
            ready = _with_copies(stage, known, context)
            part = recipe if last else replace(recipe, start_cmd=None, ready_cmd=None)
            info = _build_one(replace(part, name=name), ready, context, options, final=last)
            for key in filter(None, (stage.name, str(number))):
                known[key] = name
    return {
        "templateID": info.template_id,
        "buildID": info.build_id,
        "name": recipe.name,
        "seconds": round(time.monotonic() - began, 2),
    }


@contextmanager
def _context(recipe: Recipe) -> Iterator[Path]:
    """The build context; a copy of it if something has to be put beside what is there."""
    if not recipe.extra and len(recipes.stages(recipe.dockerfile)) == 1:
        yield recipe.context
        return
    with tempfile.TemporaryDirectory(prefix="sandlot-context-") as name:
        context = Path(name) / "context"
        shutil.copytree(recipe.context, context, symlinks=True, ignore=shutil.ignore_patterns(STAGES, "__pycache__"))
        for key, source in recipe.extra.items():
            if not source.is_dir():
                raise Failure(f"the context directory {source} of {recipe.name!r} is missing")
            shutil.copytree(source, context / key, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        yield context


def _build_one(recipe: Recipe, dockerfile: str, context: Path, options: Options, *, final: bool) -> Any:
    from e2b import Template
    from e2b.exceptions import BuildException, TemplateException

    sized: dict[str, Any] = {"cpu_count": recipe.cpu_count, "memory_mb": recipe.memory_mb}
    try:
        made: Any = Template(file_context_path=str(context)).from_dockerfile(dockerfile)
        if recipe.start_cmd or recipe.ready_cmd:
            made = _with_commands(made, recipe)
        return Template.build(
            made,
            recipe.name,
            tags=list(options.tags) if final and options.tags else None,
            skip_cache=options.no_cache,
            on_build_logs=_shown(options.quiet),
            **{name: value for name, value in sized.items() if value is not None},
        )
    except (BuildException, TemplateException, ValueError) as error:
        raise Failure(f"{recipe.name} could not be built: {error}") from error


def _with_commands(made: Any, recipe: Recipe) -> Any:
    from e2b import wait_for_timeout

    if recipe.start_cmd:
        return made.set_start_cmd(recipe.start_cmd, recipe.ready_cmd or wait_for_timeout(20_000))
    return made.set_ready_cmd(recipe.ready_cmd)


def _shown(quiet: bool) -> Any:
    def show(entry: Any) -> None:
        if not quiet and entry.level != "debug":
            print(entry.message, file=sys.stderr, flush=True)

    return show


def _plain(name: str) -> str:
    return name.rpartition("/")[2].partition(":")[0]


# -- COPY --from ---------------------------------------------------------------------------------------------------


def _with_copies(stage: Stage, known: dict[str, str], context: Path) -> str:
    """The stage with each COPY --from turned into a COPY of files that were fetched from the earlier stage."""
    lines = stage.text.splitlines()
    for number, copied in enumerate(recipes.copied_from_stages(stage.text)):
        template = known.get(copied.stage) or known.get(copied.stage.lower())
        if template is None:
            raise Failure(f"COPY --from={copied.stage}: only earlier stages of the same Dockerfile can be copied from")
        local = []
        for place, source in enumerate(copied.sources):
            into = Path(STAGES) / f"{copied.stage}-{number}-{place}"
            local.append(_fetch(template, source, context / into, into))
        lines[copied.line] = f"{copied.head}{' '.join(local)} {copied.target}"
    text = "\n".join(lines)
    # FROM an earlier stage
    for name, template in known.items():
        text = re.sub(
            rf"(?im)^(\s*FROM\s+(?:--\S+\s+)*){re.escape(name)}(\s|$)", rf"\1sandlot-template/{template}\2", text
        )
    return text


def _fetch(template: str, source: str, target: Path, name: Path) -> str:
    """Bring a file or directory of a finished stage into the context."""
    from e2b import CommandExitException, Sandbox

    from sandlot.engine.node.images import extraction

    path = "/" + source.lstrip("/").rstrip("/")
    parent, leaf = os.path.split(path)
    sandbox = Sandbox.create(template, timeout=600)
    try:
        archive = "/tmp/.sandlot-stage.tar"
        line = f"tar -C {shlex.quote(parent)} -cf {archive} -- {shlex.quote(leaf or '.')}"
        sandbox.commands.run(line, user="root", timeout=600)
        content = bytes(sandbox.files.read(archive, format="bytes", user="root"))
    except CommandExitException as error:
        raise Failure(
            f"COPY --from: {source} could not be read from the earlier stage: {error.stderr.strip()}"
        ) from error
    finally:
        sandbox.kill()
    target.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as packed:
            extraction.extract(packed, target, links_may_leave=True)
    except tarfile.TarError as error:
        raise Failure(f"COPY --from: {source} of the earlier stage cannot be taken over: {error}") from error
    return (name / leaf).as_posix() if leaf else name.as_posix()


# -- stock templates -----------------------------------------------------------------------------------------------


def build_stock(settings: Settings, name: str, options: Options) -> dict[str, Any]:
    """Build a stock template, prove that it works, and let every team use it."""
    recipe = recipes.stock(name)
    for needed in recipes.stock_needed(recipe):
        if not client.find_template(settings, needed):
            output.say(f"{name} is built upon {needed}, which comes first")
            build_stock(settings, needed, replace(options, build_args=(), tags=()))
    made = build(settings, recipe, options)
    _smoke(recipe)
    client.send(settings, "PATCH", f"/v2/templates/{made['templateID']}", {"public": True})
    _note(settings, name, options)
    return made


def _note(settings: Settings, name: str, options: Options) -> None:
    """Have the server build it again when the recipe changes; not if it was built in somebody's own way."""
    note = recipes.stock_note(settings.data_dir, name)
    if options.build_args:
        note.unlink(missing_ok=True)
        return
    note.parent.mkdir(mode=0o700, exist_ok=True)
    draft = note.with_name(f".{name}-{os.getpid()}")
    draft.write_text(recipes.stock_digest(name))
    draft.rename(note)


def _smoke(recipe: Recipe) -> None:
    from e2b import CommandExitException, Sandbox

    if not recipe.smoke:
        return
    sandbox = Sandbox.create(recipe.name, timeout=SMOKE_TIMEOUT_S)
    try:
        for command in recipe.smoke:
            sandbox.commands.run(command, timeout=SMOKE_TIMEOUT_S)
    except CommandExitException as error:
        said = (error.stderr or error.stdout).strip()[-500:]
        raise Failure(
            f"{recipe.name} was built, but does not work: {command!r} ended with {error.exit_code}: {said}"
        ) from error
    finally:
        sandbox.kill()
    output.done(f"{recipe.name}: {len(recipe.smoke)} smoke commands passed")
