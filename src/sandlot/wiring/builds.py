"""Builds what makes templates, from the settings: the built-in one, the builder, its cleanup."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial

from sandlot.engine.builds import Builder, BuildLimits, BuildSettings, BuildTools
from sandlot.engine.builds.cleanup import Cleanup
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.control.access import Access
from sandlot.engine.control.plane import ControlPlane
from sandlot.engine.core.errors import StepFailed
from sandlot.engine.core.model import Resources, Template
from sandlot.engine.core.ports import TemplateStore
from sandlot.engine.node.build_runner import LocalBuildRunner
from sandlot.engine.node.images import base, guest
from sandlot.engine.node.images.catalogue import Catalogue
from sandlot.engine.node.images.imported_images import ImportedImages
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.registry import Registries
from sandlot.engine.node.images.sources import ImageSources
from sandlot.engine.node.images.storage import LayerStorage
from sandlot.engine.node.images.uploads import DiskUploads
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlSandboxes, SqlTags, SqlTemplates
from sandlot.recipes import stock as stock_recipes
from sandlot.recipes.recipe import RecipeFailed
from sandlot.recipes.stock_templates import StockTemplates
from sandlot.settings import Settings
from sandlot.wiring.clock import now
from sandlot.wiring.node import BuiltNode, instance_id

log = logging.getLogger(__name__)
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builds:
    builder: Builder
    cleanup: Cleanup
    operator: str  # the first team, which makes the stock templates


@contextlib.asynccontextmanager
async def open_builds(
    settings: Settings, database: Database, built: BuiltNode, control: ControlPlane, stock: StockTemplates
) -> AsyncIterator[Builds]:
    """What turns recipes into templates."""
    layers, node = Layers(settings.cache_dir / "layers"), built.node
    builds, templates = SqlBuilds(database), SqlTemplates(database)
    imported = ImportedImages(settings.cache_dir / "images", layers)
    uploads = DiskUploads(settings.data_dir / "uploads", settings.max_upload_mb << 20)
    registries = Registries(
        layers, trusted=settings.trusted_registries, amazon_endpoint=settings.amazon_registry_endpoint
    )
    await registries.open()
    cleanup = Cleanup(
        templates=templates,
        builds=builds,
        node=node.host,
        storage=LayerStorage(
            cache_dir=settings.cache_dir,
            layers=layers,
            imported=imported,
            instance=instance_id(settings.data_dir),
            data_dir=settings.data_dir,
        ),
        archives=uploads,
    )
    first = await Access(store=SqlAccess(database), clock=now).ensure_first_team()
    builder = Builder(
        builds=builds,
        catalog=TemplateCatalog(
            templates=templates,
            builds=builds,
            tags=SqlTags(database),
            sandboxes=SqlSandboxes(database),
            clock=now,
            discard=node.snapshots.discard,
            changed=node.host.forget_template,
        ),
        tools=BuildTools(
            templates=templates,
            runner=LocalBuildRunner(
                machines=built.factory, layers=layers, commands=built.commands, steps_dir=settings.cache_dir / "steps"
            ),
            images=ImageSources(
                Catalogue.read(),
                registries,
                imported,
                use_catalogue=settings.image_catalogue,
                allow_other_versions=settings.allow_stand_in,
            ),
            uploads=uploads,
            hold=control.inflight.holding,
        ),
        clock=now,
        settings=BuildSettings(
            runtime=built.default_runtime,
            step_runtime="container" if settings.build_isolation == "container" else built.default_runtime,
            node=node.name,
            envd_version=guest.envd_version(),
            limits=_limits(settings),
            reserved=frozenset(["base", *(stock_recipes.read(name).name for name in stock_recipes.names())]),
            first_team=first.id,
        ),
    )
    builder.on_ready(cleanup.need)
    builder.when_missing(partial(_make_stock, stock))
    try:
        yield Builds(builder=builder, cleanup=cleanup, operator=first.id)
    finally:
        await builder.close()
        await registries.close()


async def _make_stock(stock: StockTemplates, ref: str, output: Progress) -> bool:
    try:
        return await stock.make(ref, output)
    except RecipeFailed as error:
        raise StepFailed(str(error)) from error


def _limits(settings: Settings) -> BuildLimits:
    return BuildLimits(
        at_once=settings.builds_at_once,
        build_s=settings.build_timeout_minutes * 60,
        step_s=settings.build_timeout_minutes * 60,
        ready_s=settings.build_ready_s,
        memory_mb=settings.build_memory_mb,
        disk_mb=settings.build_disk_mb,
        internet=settings.build_internet,
        sandbox=_resources(settings, Resources()),
    )


async def built_in_templates(settings: Settings, templates: TemplateStore, progress: Progress) -> None:
    """Have the base template's layer on disk and its row in the store, as its recipe says now."""
    recipe = base.read_recipe()
    layer = await base.build_base(recipe, settings.cache_dir / "layers", progress)
    known = await templates.resolve(None, recipe.name)
    at = now()
    template = Template(
        id=recipe.name,
        team_id=None,
        name=recipe.name,
        layers=(layer,),
        build_id=_build_id(layer),
        created_at=at,
        updated_at=at,
        resources=_resources(settings, recipe.resources),
        default_user=recipe.user,
        default_workdir=recipe.workdir,
        public=True,
        recipe_digest=recipe.digest,
        envd_version=guest.envd_version(),
    )
    if known is not None:
        same = replace(
            template,
            created_at=known.created_at,
            updated_at=known.updated_at,
            spawn_count=known.spawn_count,
            last_spawned_at=known.last_spawned_at,
        )
        if same == known:
            return
        template = replace(same, updated_at=at)
    await templates.put(template)
    log.info("template %s is ready (%s)", recipe.name, layer)


def _resources(settings: Settings, recipe: Resources) -> Resources:
    """The operator's settings decide for built-in templates; recipes of users bring their own."""
    return replace(
        recipe,
        cpu_count=settings.sandbox_cpu_count,
        memory_mb=settings.sandbox_memory_mb,
        disk_mb=settings.sandbox_disk_mb,
        pids=settings.sandbox_pids,
    )


def _build_id(layer: str) -> str:
    digest = hashlib.sha256(layer.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
