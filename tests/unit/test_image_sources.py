"""Which image a recipe begins with, where no registry answers: one that fits, or none."""

from __future__ import annotations

from typing import Any

import pytest

from sandlot.engine.core.errors import StepFailed, Unavailable
from sandlot.engine.node.images.catalogue import Catalogue
from sandlot.engine.node.images.sources import ImageSources


class NoRegistries:
    """No registry answers."""

    async def pull(self, *_: Any) -> Any:
        raise Unavailable("no registry answers")


async def find(ref: str, **options: Any) -> tuple[str | None, str]:
    sources = ImageSources(Catalogue.read(), NoRegistries(), None, **{"use_catalogue": "fallback", **options})  # type: ignore[arg-type]
    image = await sources.find(ref, None, lambda line, level: None)
    return image.template, image.description


@pytest.mark.parametrize(
    ("ref", "template", "holds"),
    [
        ("debian", "base", "Debian 12"),
        ("debian:12-slim", "base", "Debian 12"),
        ("python:3", "base", "Python 3.11"),
        ("docker.io/library/node:lts", "node", "Node.js 24"),
    ],
)
async def test_a_version_that_fits_stands_in_and_is_named(ref: str, template: str, holds: str) -> None:
    for use in ("fallback", "first"):
        found, said = await find(ref, use_catalogue=use)
        assert found == template and holds in said


@pytest.mark.parametrize("ref", ["ubuntu", "ubuntu:22.04", "debian:11", "python:3.13", "python:3.1", "node:20-alpine"])
async def test_another_version_stands_in_only_if_that_is_allowed(ref: str) -> None:
    for use in ("fallback", "first"):
        with pytest.raises(StepFailed, match=r"is not what it says; .*--allow-stand-in"):
            await find(ref, use_catalogue=use)
    found, said = await find(ref, allow_other_versions=True)
    assert found in ("base", "node") and "Debian 12" in said


async def test_a_digest_means_one_image_alone() -> None:
    with pytest.raises(StepFailed, match="not what it says"):
        await find("debian:12@sha256:" + "0" * 64)
    with pytest.raises(StepFailed, match="could not be pulled: no registry answers"):
        await find("debian:12", use_catalogue="never")
