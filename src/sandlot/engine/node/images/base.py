"""The built-in base template: reads its recipe and turns it into a root filesystem layer with Debian's own tools."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandlot.data_files import data_files
from sandlot.engine.core.errors import Unavailable
from sandlot.engine.core.model import Resources
from sandlot.engine.node import processes
from sandlot.engine.node.images import archive, nodejs
from sandlot.engine.node.images.layers import Layers
from sandlot.program import SANDLOT

Progress = Callable[[str], None]  # one short line about what is being done now

TEMPLATES = data_files("templates")
FORMAT = 3  # raise it when this module builds something else from the same recipe
BUILD_TIMEOUT_S = 3600
# Documentation and translations are a third of a small image, and nobody reads them in a sandbox.
_SLIM = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/lintian/*",
)
# How this machine reaches an archive may differ (a proxy, say); that much of apt's configuration goes into the build.
_APT_FACTS = re.compile(r'(Acquire::(?:https?::Proxy|https?::CaInfo|Check-Valid-Until)) "[^"]+";')


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecipe:
    """A template's directory, read: what goes in, and what proves that it came out right."""

    name: str
    description: str
    suite: str
    components: tuple[str, ...]
    packages: tuple[str, ...]
    user: str
    workdir: str
    resources: Resources
    smoke: tuple[str, ...]
    node: str | None  # the version of Node.js that goes in
    setup: str  # a shell script that runs inside, as root
    digest: str

    @property
    def layer(self) -> str:
        """The name of the layer this recipe gives on this machine."""
        return f"{self.name}-{self.digest[:16]}"


def read_recipe(directory: Path = TEMPLATES / "base") -> BaseRecipe:
    text, setup = (directory / "template.toml").read_text(), (directory / "setup.sh").read_text()
    facts = tomllib.loads(text)
    # Limits and smoke commands are not part of what is built: changing them must not cost a build.
    node = facts.get("node")
    built = (facts["suite"], facts["components"], sorted(facts["packages"]), node, setup, platform.machine(), FORMAT)
    return BaseRecipe(
        name=facts["name"],
        description=facts["description"],
        suite=facts["suite"],
        components=tuple(facts["components"]),
        packages=tuple(facts["packages"]),
        user=facts["user"],
        workdir=facts["workdir"],
        resources=Resources(**facts["resources"]),
        smoke=tuple(facts["smoke"]["commands"]),
        node=node,
        setup=setup,
        digest=hashlib.sha256(repr(built).encode()).hexdigest(),
    )


async def build_base(recipe: BaseRecipe, layers_dir: Path, progress: Progress = lambda _: None) -> str:
    """Have the recipe's layer on this machine and return its name; builds it only if it is missing."""
    layers = Layers(layers_dir)
    if layers.has(recipe.layer):
        return recipe.layer

    async def fill(root: Path) -> None:
        await _bootstrap(recipe, root, progress)
        if recipe.node:
            await nodejs.install(recipe.node, root, progress)
        _scrub(root, recipe)

    await layers.publish(
        recipe.layer, fill, waiting=lambda: progress("waiting for another process that is building the same template")
    )
    return recipe.layer


async def _bootstrap(recipe: BaseRecipe, root: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-build-") as name:
        work = Path(name)
        argv = await _command(recipe, root, work)
        log = work / "log"
        with log.open("wb") as out:
            following = asyncio.create_task(_follow(log, progress))
            try:
                # Its own pid and mount namespaces: however it ends, no process and no mount of it is left.
                await processes.run(
                    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *argv),
                    timeout_s=BUILD_TIMEOUT_S,
                    env=_environment(),
                    stdio=out,
                )
            except processes.CommandFailed as error:
                raise Unavailable(_failure(recipe, log)) from error
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following


async def _command(recipe: BaseRecipe, root: Path, work: Path) -> Sequence[str]:
    setup = work / "setup.sh"
    setup.write_text(recipe.setup)
    debian = archive.of_this_host()
    if shutil.which("mmdebstrap"):
        sources = work / "debian.sources"
        sources.write_text(debian.sources(recipe.suite, recipe.components))
        facts = await _apt_facts()
        return (
            "mmdebstrap",
            *("--verbose", "--variant=minbase", "--mode=root", "--format=directory", "--skip=check/empty"),
            f"--include={','.join(recipe.packages)}",
            *(f"--dpkgopt={option}" for option in _SLIM),
            *(f"--aptopt={fact}" for fact in facts),
            f"--customize-hook=upload {setup} /tmp/setup.sh",
            '--customize-hook=chroot "$1" /bin/sh /tmp/setup.sh',
            *(recipe.suite, str(root), str(sources)),
        )
    if shutil.which("debootstrap"):
        script = (
            'debootstrap --variant=minbase --include="$1" "$2" "$3" "$4"'
            ' && chroot "$3" apt-get clean && cp "$5" "$3/tmp/setup.sh" && chroot "$3" /bin/sh /tmp/setup.sh'
        )
        included = ",".join(recipe.packages)
        return ("sh", "-c", script, "sh", included, recipe.suite, str(root), debian.main, str(setup))
    raise Unavailable(
        f"the template {recipe.name!r} cannot be built: neither mmdebstrap nor debootstrap is installed. "
        f"Install one of them with this system's package manager (`{SANDLOT} doctor` has the command), then try again"
    )


async def _apt_facts() -> list[str]:
    if not shutil.which("apt-config"):
        return []
    dump = await processes.run("apt-config", "dump", "Acquire", check=False)
    return [line for line in dump.stdout.decode(errors="replace").splitlines() if _APT_FACTS.fullmatch(line)]


def _environment() -> dict[str, str]:
    passed = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **{name: os.environ[name] for name in passed if name in os.environ},
    }


async def _follow(log: Path, progress: Progress) -> None:
    """Turn the growing log into lines for people, a few times a second."""
    with log.open(errors="replace") as lines:
        while True:
            last = None
            while line := lines.readline():
                last = _progress_of(line) or last
            if last:
                progress(last)
            await asyncio.sleep(0.2)


def _progress_of(line: str) -> str | None:
    if match := re.match(r"I: (running apt-get update|downloading packages|extracting archives|installing \w+)", line):
        return match[1].replace("running apt-get update", "reading package lists")
    if match := re.match(r"Get:(\d+) \S+ \S+ \S+ (\S+)", line):
        return f"downloading {match[2]}"
    if match := re.match(r"(Unpacking|Setting up|I: Retrieving|I: Extracting|I: Configuring) ([a-z0-9.+-]+)", line):
        return f"{match[1].removeprefix('I: ').lower()} {match[2]}"
    return None


def _failure(recipe: BaseRecipe, log: Path) -> str:
    tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-15:])
    return (
        f"the template {recipe.name!r} could not be built; the last lines of the build were:\n{tail}\n"
        "Check that this machine reaches its Debian archive (`apt-get update`) and has 2 GiB of free disk, then run "
        f"`{SANDLOT} up` again: nothing of the failed build was kept"
    )


def _scrub(root: Path, recipe: BaseRecipe) -> None:
    """Take out what belongs to this machine or to the build, and leave a Debian that anybody can use."""
    for pattern in (
        *("tmp/*", "run/*", "var/tmp/*", "var/log/**/*", "var/cache/apt/**/*", "var/cache/debconf/*-old"),
        *("var/cache/ldconfig/*", "var/lib/apt/lists/**/*", "var/lib/dpkg/*-old", "var/lib/dbus/machine-id"),
        *("etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list", "etc/apt/sources.list.d/*"),
        *("etc/ssh/ssh_host_*", "etc/*-", "etc/.pwd.lock", "root/.bash_history", "root/.cache", ".dockerenv"),
    ):
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                if "**" not in pattern:
                    shutil.rmtree(path)
            else:
                path.unlink()
    for name in ("etc/machine-id", "etc/resolv.conf", "etc/hostname"):  # exist, so that they can be mounted over
        path = root / name
        path.unlink(missing_ok=True)
        path.write_text("")
    slim = root / "etc/dpkg/dpkg.cfg.d/99mmdebstrap"
    if slim.exists():
        slim.rename(slim.with_name("slim"))
    (root / "etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    public = archive.Archive().sources(recipe.suite, recipe.components)
    (root / "etc/apt/sources.list.d/debian.sources").write_text(public)
