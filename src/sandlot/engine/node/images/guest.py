"""Assembles the guest runtime: the interpreter, loader, libraries and modules that envd runs on inside every sandbox.

It is made from the Python that the server itself runs on, is mounted read-only at `GUEST_MOUNT`, and uses nothing of the
image it is mounted into: images without Python, or with another C library, work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import marshal
import py_compile
import re
import shutil
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sandlot.data_files import data_files
from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node.processes import CommandFailed, run

GUEST_MOUNT = "/.sandlot"
# Fixed, so that neither locales nor time zones are looked up in the image.
GUEST_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "TZ": "UTC0",
}

_LAYOUT = 2  # raise when the way of assembling changes, so that older results are not reused
_PRELOAD = b"/etc/ld.so.preload"

# What the daemon imports only when it is needed, and what the stand-ins for heavy modules load if something unforeseen happens.
_IMPORTED_LATE = (
    "asyncio",
    "concurrent.futures.thread",
    "ctypes",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_8",
    "inspect",
    "json.decoder",
    "linecache",
    "random",
    "subprocess",
    "traceback",
    "typing",
    "zlib",
)
# Both print a map of module names to files: what a plain start imports, and everything that can be needed.
_LIST_START = """
import sys
version, sources, late = sys.argv[1:]
if version != "%d.%d" % sys.version_info[:2]:
    sys.exit("it must be Python " + version + ", as the server's own")
sys.path.insert(0, sources)
from envd import slim
slim.install(print)
import envd.__main__, envd.daemon
found = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if type(module) is type(sys)}
import json
print(json.dumps({name: path for name, path in found.items() if path}))
"""
_LIST_ALL = """
import json, pkgutil, sys
version, sources, late = sys.argv[1:]
sys.path.insert(0, sources)
sys.modules["ssl"] = None
import envd
for name in [*json.loads(late), *("envd." + each.name for each in pkgutil.iter_modules(envd.__path__))]:
    __import__(name)
for name in ("_sha2", "_sha256"):  # the newer and the older home of one function
    try:
        __import__(name)
    except ImportError:
        pass
del sys.modules["ssl"]
found = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(json.dumps({name: path for name, path in found.items() if path}))
"""


def guest_argv(*options: str) -> tuple[str, ...]:
    """The command that starts envd inside a sandbox; `options` are envd's own."""
    return (*guest_python(), f"{GUEST_MOUNT}/lib/python{sysconfig.get_python_version()}/start.pyc", *options)


def guest_python() -> tuple[str, ...]:
    """The command that starts the guest runtime's Python inside a sandbox."""
    library = f"{GUEST_MOUNT}/lib"
    return (
        f"{library}/{loader().name}",
        "--inhibit-cache",
        "--library-path",
        library,
        f"{GUEST_MOUNT}/bin/python3",
        "-I",  # no environment variables, no user or current directory
        "-S",
        "-B",
        "-X",
        "utf8",
    )


async def build_guest(into: Path, python: Path | None = None) -> Path:
    """The directory to mount at `GUEST_MOUNT`: found below `into`, or assembled there.

    Its name is a digest of what it is made from, so that sandboxes keep the one they started with. `python` is the
    interpreter to take, the server's own by default.
    """
    python = (python or base_python()).resolve()
    sources = envd_sources()
    target = into / _digest(python, sources)
    if target.is_dir():
        return target
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".guest-", dir=into) as directory:
        part = Path(directory) / "guest"
        await _assemble(part, python, sources)
        with contextlib.suppress(OSError):  # another server was faster: the result is the same
            part.rename(target)
    if not target.is_dir():
        raise Unavailable(f"the guest runtime could not be put at {target}: check the directory and its free space")
    return target


def base_python() -> Path:
    """The interpreter behind the virtual environment, if we run in one."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def envd_sources() -> Path:
    """The directory that holds the `envd` package."""
    directory = data_files("guest")
    if (directory / "envd" / "__main__.py").is_file():
        return directory
    raise Unavailable("envd's sources are missing from this installation of Sandlot: install it again")


@cache
def envd_version() -> str:
    """The version that this guest runtime's daemon tells SDKs."""
    found = re.search(r'^VERSION = "([^"]+)"', (envd_sources() / "envd" / "__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise Unavailable("envd does not say its version; is this checkout whole?")
    return found[1]


def loader(python: Path | None = None) -> Path:
    """The dynamic loader that the interpreter names in its own header."""
    python = python or base_python()
    data = python.read_bytes()
    if data[:4] != b"\x7fELF" or data[4] != 2:
        raise Unavailable(f"{python} is not a 64-bit Linux program: run Sandlot with a Python that is")
    start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for at in range(start, start + size * count, size):
        kind, _flags, offset, _virtual, _physical, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == 3:  # PT_INTERP
            return Path(data[offset : offset + length].rstrip(b"\0").decode())
    raise Unavailable(f"{python} is linked statically: run Sandlot with a dynamically linked Python")


def _digest(python: Path, sources: Path) -> str:
    digest = hashlib.sha256(f"{_LAYOUT} {GUEST_MOUNT} {sys.implementation.cache_tag}".encode())
    for file in (python, loader(python)):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    for file in sorted((sources / "envd").glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


async def _assemble(target: Path, python: Path, sources: Path) -> None:
    version = sysconfig.get_python_version()
    arguments = (version, str(sources), json.dumps(_IMPORTED_LATE))
    try:
        at_start = json.loads((await run(str(python), "-I", "-S", "-c", _LIST_START, *arguments)).stdout)
        later = json.loads((await run(str(python), "-I", "-S", "-c", _LIST_ALL, *arguments)).stdout)
    except CommandFailed as error:
        raise Unavailable(f"{python} cannot run envd: {error}") from error
    modules = {name: Path(path) for name, path in {**later, **at_start}.items()}
    library = target / "lib" / f"python{version}"
    (library / "lib-dynload").mkdir(parents=True)
    (target / "bin").mkdir()
    shutil.copy(python, target / "bin" / "python3")
    _write_sudo(target / "bin" / "sudo")
    extensions = list(_place_modules(modules, library))
    _compile("start", sources / "envd" / "bundle.py", library / "start.pyc")
    _bundle(at_start, modules, library)
    await _place_libraries([python, *extensions], loader(python), target / "lib")


def _write_sudo(path: Path) -> None:
    """The stand-in for sudo, which gVisor machines find instead of the image's own."""
    interpreter = " ".join(guest_python())
    path.write_text(f'#!/bin/sh\nexec {interpreter} -c "from envd.sudo import run; run()" "$@"\n')
    path.chmod(0o755)


def _place_modules(modules: dict[str, Path], library: Path) -> Iterator[Path]:
    """Compile modules into `library` and copy extension modules; yield the originals of the latter."""
    for name, path in sorted(modules.items()):
        if path.suffix == ".so":
            shutil.copy(path, library / "lib-dynload" / path.name)
            yield path
        else:
            _compile(name, path, _compiled(name, path, library))


def _compiled(name: str, path: Path, library: Path) -> Path:
    """Where the import system looks for a module that has no source."""
    place = library.joinpath(*name.split("."))
    return place / "__init__.pyc" if path.name == "__init__.py" else place.with_name(f"{place.name}.pyc")


def _compile(name: str, path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    py_compile.compile(
        str(path),
        cfile=str(place),
        dfile=f"{name}.py",
        doraise=True,
        optimize=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _bundle(names: Iterable[str], modules: dict[str, Path], library: Path) -> None:
    """Put what a start needs into the one file that `envd/bundle.py` reads."""
    bundle: dict[str, tuple[int, bytes | str]] = {}
    for name in names:
        path = modules[name]
        if path.suffix == ".so":
            bundle[name] = (2, path.name)
        else:
            code = _compiled(name, path, library).read_bytes()[16:]  # without the header of the file format
            bundle[name] = (1 if path.name == "__init__.py" else 0, code)
    (library / "bundle").write_bytes(marshal.dumps(bundle))


async def _place_libraries(programs: Iterable[Path], loader_path: Path, library: Path) -> None:
    """Copy the loader, and every shared library that the programs need, under the names they are asked for."""
    needed: dict[str, Path] = {}
    for program in programs:
        try:
            listing = await run(str(loader_path), "--list", str(program))
        except CommandFailed as error:
            raise Unavailable(f"the shared libraries of {program} cannot be found: {error}") from error
        needed.update(_parse_libraries(listing.stdout.decode()))
    for name, path in sorted(needed.items()):
        shutil.copy(path, library / name)
    # What an image asks to be loaded into every program is built for the image's C library, not for ours.
    image = loader_path.read_bytes().replace(_PRELOAD, f"{GUEST_MOUNT}/preload".encode().ljust(len(_PRELOAD), b"\0"))
    (library / loader_path.name).unlink(missing_ok=True)
    (library / loader_path.name).write_bytes(image)
    (library / loader_path.name).chmod(0o755)


def _parse_libraries(listing: str) -> dict[str, Path]:
    found = {}
    for line in listing.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        path = rest.split(" (")[0]
        if arrow and path.startswith("/"):
            found[Path(name).name] = Path(path)
        elif arrow:
            raise Unavailable(f"the shared library {name}, which Python needs, is not installed")
    return found
