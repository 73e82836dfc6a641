"""Finds the image that a recipe begins with: in a registry, or in the local catalogue where no registry answers."""

from __future__ import annotations

from sandlot.engine.core.errors import StepFailed, Unavailable
from sandlot.engine.core.model import AmazonLogin, Image, RegistryLogin
from sandlot.engine.core.ports import Output
from sandlot.engine.node.images.catalogue import Catalogue
from sandlot.engine.node.images.imported_images import PREFIX, ImportedImages
from sandlot.engine.node.images.references import parse_image
from sandlot.engine.node.images.registry import Registries

TEMPLATE_PREFIX = "sandlot-template/"  # FROM in a Dockerfile can name a template of this server too


class ImageSources:
    def __init__(
        self,
        catalogue: Catalogue,
        registries: Registries,
        imported: ImportedImages,
        *,
        use_catalogue: str,
        allow_other_versions: bool = False,
    ) -> None:
        """`use_catalogue`: "fallback" where no registry can be reached, "first", or "never"."""
        self._allow = allow_other_versions
        self._catalogue, self._registries, self._imported = catalogue, registries, imported
        self._use = use_catalogue

    async def find(self, ref: str, login: RegistryLogin | AmazonLogin | None, output: Output) -> Image:
        if ref.startswith(TEMPLATE_PREFIX):
            name = ref.removeprefix(TEMPLATE_PREFIX)
            return Image(description=f"building on the template {name!r}", template=name)
        if ref.startswith(PREFIX):
            return self._imported.find(ref)
        reference = parse_image(ref)
        entry = self._catalogue.find(reference)
        fits = entry is not None and (self._allow or entry.fits(reference))
        if entry is not None and fits and self._use != "never" and (entry.own or self._use == "first"):
            held = f" ({entry.holds})" if entry.holds else ""
            return Image(
                description=f"{ref}: using the stock template {entry.template!r}{held} of this server",
                template=entry.template,
            )
        try:
            return await self._registries.pull(reference, login, output)
        except Unavailable as error:
            if entry is None or self._use == "never" or login is not None:
                raise StepFailed(f"image {ref!r} could not be pulled: {error}") from error
            if not fits:
                raise StepFailed(
                    f"image {ref!r} could not be pulled: {error}. The stock template {entry.template!r}, {entry.holds}, is "
                    "not what it says; to have it stand in all the same, start the server with --allow-stand-in"
                ) from error
            output(f"{ref}: {error}", "warn")
            description = (
                f"{ref}: no registry can be reached from here, so the stock template {entry.template!r} of the local "
                f"catalogue, {entry.holds}, is used in its place"
            )
            return Image(description=description, template=entry.template)
