"""The commands about templates: what sandboxes can start from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from sandlot.cli import client, output
from sandlot.cli import stock as stock_builds
from sandlot.cli.options import Json, of_instance, settings

if TYPE_CHECKING:
    from sandlot.recipes.build import BuiltTemplate

app = typer.Typer(no_args_is_help=True, help="What sandboxes can start from.")


@app.callback()
def group() -> None:
    """What sandboxes can start from."""


@app.command("list")
@of_instance
def list_(
    *, disk: Annotated[bool, typer.Option("--disk", help="Also what each takes up.")] = False, as_json: Json = False
) -> None:
    """List templates."""
    rows = client.get(settings(), "/templates")
    sizes = {row["templateID"]: row["bytes"] for row in client.get(settings(), "/templates/usage")} if disk else {}
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            client.template_name(row),
            row["templateID"],
            row.get("cpuCount"),
            f"{row['memoryMB']} MiB" if row.get("memoryMB") else None,
            row.get("spawnCount", 0),
            row.get("updatedAt"),
            *((output.size(sizes.get(row["templateID"], 0)),) if disk else ()),
        )
        for row in rows
    ]
    columns = ("name", "id", "cpus", "memory", "started", "updated", *(("disk",) if disk else ()))
    output.print_table(columns, table, "No templates.")


@app.command("build")
@of_instance
def build_template(
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The Dockerfile. Default: what e2b.toml names.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name, with a tag if you like: my-app:v2.")] = None,
    stock: Annotated[
        bool, typer.Option("--stock", help="Build a template that comes with Sandlot; all if none is named.")
    ] = False,
    names: Annotated[list[str] | None, typer.Argument(help="With --stock: which ones.")] = None,
    build_arg: Annotated[list[str] | None, typer.Option("--build-arg", help="Value of an ARG: NAME=value.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="More tags for the build.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every step again.")] = False,
    cpu_count: Annotated[int | None, typer.Option("--cpus", help="CPUs of its sandboxes.")] = None,
    memory_mb: Annotated[int | None, typer.Option("--memory", help="Memory of its sandboxes, in MiB.")] = None,
    start_cmd: Annotated[str | None, typer.Option(help="What runs in its sandboxes from the start.")] = None,
    ready_cmd: Annotated[str | None, typer.Option(help="What succeeds when that is ready.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No build log.")] = False,
    as_json: Json = False,
) -> None:
    """Build a template from a Dockerfile, or one that comes with Sandlot."""
    from sandlot.recipes import stock as stock_recipes
    from sandlot.recipes.build import Options, build, build_stock
    from sandlot.recipes.recipe import read_directory

    server = client.connection(settings())
    options = Options(
        build_args=build_arg or (), tags=tag or (), no_cache=no_cache, output=_ignore if quiet else output.say
    )
    built: list[BuiltTemplate] = []
    with _failures():
        if stock:
            own_way = bool(build_arg or tag or no_cache)
            for stock_name in names or stock_recipes.names():
                if own_way:
                    notes = stock_recipes.StockNotes(settings().data_dir)
                    built.append(asyncio.run(build_stock(server, stock_name, notes, options)))
                else:
                    built.append(stock_builds.build(settings(), stock_name, options.output))
        else:
            recipe = read_directory(file, name)
            recipe = replace(
                recipe,
                cpu_count=cpu_count or recipe.cpu_count,
                memory_mb=memory_mb or recipe.memory_mb,
                start_cmd=start_cmd or recipe.start_cmd,
                ready_cmd=ready_cmd or recipe.ready_cmd,
            )
            built.append(asyncio.run(build(server, recipe, options)))
    if as_json:
        output.print_json([_as_json(each) for each in built])
        return
    for each in built:
        output.done(f"{each.name} is ready ({each.template_id}, {each.seconds} s)")


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    from sandlot.recipes.recipe import RecipeFailed

    try:
        yield
    except RecipeFailed as error:
        raise output.Failure(str(error)) from error


def _ignore(line: str) -> None:
    pass


def _as_json(built: BuiltTemplate) -> dict[str, str | float]:
    return {
        "templateID": built.template_id,
        "buildID": built.build_id,
        "name": built.name,
        "seconds": built.seconds,
    }


@app.command("delete")
@of_instance
def delete(*, names: Annotated[list[str], typer.Argument(help="Names or ids.")]) -> None:
    """Delete templates that no sandbox uses."""
    for name in names:
        client.send(settings(), "DELETE", f"/templates/{quote(name, safe='')}")
        output.done(f"{name} deleted")


@app.command("import")
@of_instance
def import_(
    *,
    source: Annotated[
        Path, typer.Argument(help="An OCI layout, or what `docker save` wrote: a directory or an archive.")
    ],
    name: Annotated[str, typer.Option(help="Name of the template.")],
    as_json: Json = False,
) -> None:
    """Make a template from an image in a file. Recipes can begin with it too: FROM imported/NAME."""
    from sandlot.engine.node.images.imported_images import PREFIX, ImportedImages
    from sandlot.engine.node.images.layers import Layers
    from sandlot.recipes.build import build
    from sandlot.recipes.recipe import Recipe

    chosen = settings()
    if not source.exists():
        raise output.Failure(f"{source} does not exist")
    images = ImportedImages(chosen.cache_dir / "images", Layers(chosen.cache_dir / "layers"))
    with output.step(f"Importing {source.name}"):
        asyncio.run(images.import_image(source, name.partition(":")[0]))
    dockerfile = f"FROM {PREFIX}{name.partition(':')[0]}"
    recipe = Recipe(name=name, dockerfile=dockerfile, context=Path())
    with _failures():
        built = asyncio.run(build(client.connection(chosen), recipe))
    if as_json:
        output.print_json(_as_json(built))
    else:
        output.done(f"{name} is ready ({built.template_id})")


@app.command("prune")
@of_instance
def prune(*, as_json: Json = False) -> None:
    """Remove layers that no template, sandbox or recent build of this machine needs."""
    removed = client.send(settings(), "POST", "/templates/prune")
    if as_json:
        output.print_json(removed)
    else:
        output.done(f"{removed['layers']} layers removed, {output.size(removed['bytes'])} freed")
