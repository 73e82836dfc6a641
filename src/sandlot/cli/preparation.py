"""Gets a host ready for a server: packages, gVisor, the checks that matter now, and the base template."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from sandlot.cli import output
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT
from sandlot.setup import gvisor, packages
from sandlot.setup.packages import SetupFailed

if TYPE_CHECKING:
    from sandlot.settings import Settings

RETRY_GVISOR_S = 86400


def require_root() -> None:
    if os.geteuid() != 0:
        raise Failure(
            f"Sandlot needs root to make namespaces, networks and disks for sandboxes. Run: sudo {SANDLOT} up"
        )


def prepare(settings: Settings) -> None:
    install_packages("run")
    try:
        install_packages("domain")
    except Failure as error:
        if settings.domain:
            raise
        output.warn(f"names of sandboxes below localhost do not resolve here, which older SDKs need: {error}")
    _install_gvisor(settings)
    _check_host(settings)
    _build_base(settings)


def prepare_templates(settings: Settings) -> None:
    """What tests start from: gVisor where it can be had, and the base template."""
    _install_gvisor(settings)
    _build_base(settings)


def install_packages(*groups: str) -> None:
    """Install what is missing of these groups; a host that has everything costs a few milliseconds."""
    missing = [need for need in packages.missing(*groups) if need.name != "runsc"]  # gVisor has ways of its own
    if all(need.optional for need in missing):
        return
    names = ", ".join(need.name for need in missing)
    try:
        with output.step(f"Installing system packages for {names}") as tell:
            packages.install(missing, tell)
        _require([need for need in packages.missing(*groups) if need in missing])
    except SetupFailed as error:
        raise Failure(str(error)) from error
    output.done(f"Installed what was missing: {names}")


def _require(left: list[packages.Need]) -> None:
    """What no package brought stops a server, and in tests what needs it."""
    for need in left:
        if need.group == "run" and not need.optional:
            raise SetupFailed(f"{need.name} is still missing. It {need.why}. To get it: {packages.fix([need])}")
        output.warn(f"{need.name} is still missing. It {need.why}. To get it: {packages.fix([need])}")


def _install_gvisor(settings: Settings) -> None:
    if settings.runtime == "container" or settings.runsc or gvisor.is_usable():
        return
    failed_before = settings.cache_dir / "gvisor-not-available"
    recently = failed_before.exists() and time.time() - failed_before.stat().st_mtime < RETRY_GVISOR_S
    if recently and settings.runtime == "auto":
        return
    try:
        with output.step("Installing gVisor") as tell:
            gvisor.install(tell)
    except SetupFailed as error:
        if settings.runtime == "gvisor":
            raise Failure(str(error)) from error
        failed_before.parent.mkdir(parents=True, exist_ok=True)
        failed_before.write_text(f"{error}\n")
        output.warn(f"no gVisor here, so sandboxes use the `container` runtime: {str(error).splitlines()[0]}")
        return
    failed_before.unlink(missing_ok=True)
    output.done("Installed gVisor")


def _check_host(settings: Settings) -> None:
    from sandlot.setup import checks

    failing = [finding for finding in checks.before_start(settings) if finding.state == "fail"]
    if failing:
        lines = "\n".join(f"  {finding.name}: {finding.detail}\n    {finding.fix}" for finding in failing)
        raise Failure(f"this host is not ready:\n{lines}")


def _build_base(settings: Settings) -> None:
    from sandlot.engine.core.errors import EngineError
    from sandlot.engine.node.images import base
    from sandlot.engine.node.images.layers import Layers

    recipe, directory = base.read_recipe(), settings.cache_dir / "layers"
    if Layers(directory).has(recipe.layer):
        return
    began = time.monotonic()
    try:
        with output.step("Building the base template (once, about a minute)") as tell:
            asyncio.run(base.build_base(recipe, directory, tell))
    except EngineError as error:
        raise Failure(str(error)) from error
    output.done(f"Built the base template in {time.monotonic() - began:.0f} s")
