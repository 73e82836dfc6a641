"""Root filesystems of other distributions, pulled from a real registry: Debian 11 and 13, and one with musl instead of glibc."""

from __future__ import annotations

import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from e2b import Sandbox, Template
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, free_port
from tests.templates import registry as registries
from tests.templates.conftest import Lines, cache_with_base
from tests.templates.registry import Registry, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MIRROR = "http://deb.debian.org/debian"
DEBIANS = {"debian-11": ("bullseye", "11"), "debian-13": ("trixie", "13")}
APPLETS = ("sh", "ls", "cat", "id", "uname", "sleep", "wc", "grep", "env", "mkdir", "adduser", "addgroup", "ps", "head")
LIBC = {"11": "2.31", "13": "2.41"}
HELLO = '#include <stdio.h>\nint main(void) { puts("hello from musl"); return 0; }\n'
MUSL_RELEASE = b"ID=musl-busybox\nVERSION_ID=1\nPRETTY_NAME=musl and BusyBox\n"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registries.running(tmp_path_factory.mktemp("registry"), free_port()) as registry:
        for name, (suite, version) in DEBIANS.items():
            directory = tmp_path_factory.mktemp(name)
            subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=minbase", suite, str(directory / "root.tar"), MIRROR],
                check=True,
                timeout=900,
            )
            push(registry, directory, f"debian:{version}")
        directory = tmp_path_factory.mktemp("musl")
        musl_root(directory)
        push(registry, directory, "musl:1")
        yield registry


def push(registry: Registry, directory: Path, name: str) -> None:
    layout = directory / "layout"
    run("umoci", "init", "--layout", str(layout))
    run("umoci", "new", "--image", f"{layout}:latest")
    run("umoci", "raw", "add-layer", "--image", f"{layout}:latest", str(directory / "root.tar"))
    (directory / "root.tar").unlink()
    registry.push(layout, name)


def musl_root(directory: Path) -> None:
    """As Alpine is built: musl's loader, BusyBox for everything, and one program that musl loads."""
    (directory / "hello.c").write_text(HELLO)
    run("musl-gcc", "-o", str(directory / "hello"), str(directory / "hello.c"))
    with tarfile.open(directory / "root.tar", "w") as tar:

        def add(name: str, content: bytes = b"", mode: int = 0o755, **facts: object) -> None:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            for key, value in facts.items():
                setattr(info, key, value)
            tar.addfile(info, BytesIO(content))

        for folder in ("bin", "etc", "lib", "usr", "usr/bin", "root", "home", "var", "tmp"):
            add(folder, mode=0o1777 if folder == "tmp" else 0o755, type=tarfile.DIRTYPE)
        add("lib/ld-musl-x86_64.so.1", Path("/lib/ld-musl-x86_64.so.1").resolve().read_bytes())
        add("bin/busybox", Path("/bin/busybox").resolve().read_bytes())
        add("usr/bin/hello", (directory / "hello").read_bytes())
        for applet in APPLETS:
            add(f"bin/{applet}", type=tarfile.SYMTYPE, linkname="/bin/busybox")
        add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
        add("etc/group", b"root:x:0:\n", 0o644)
        add("etc/os-release", MUSL_RELEASE, 0o644)


@pytest.fixture(scope="module", params=["container", "gvisor"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, registry: Registry
) -> Iterator[Server]:
    """With a cache of its own, so that each pull is a real one."""
    settings = {"trusted_registries": registry.address, "cache_dir": str(cache_with_base(tmp_path_factory))}
    with in_pristine(tmp_path_factory, str(request.param), **settings) as server:
        yield server


def template(server: Server, image: str) -> tuple[str, Lines]:
    name, lines = f"foreign-{uuid.uuid4().hex[:8]}", Lines()
    recipe = (
        Template()
        .from_image(image)
        .run_cmd("cat /etc/os-release > /built", user="root")
        .run_cmd("id -un > /tmp/builder; echo built > ~/note")
    )
    Template.build(recipe, name, cpu_count=1, memory_mb=512, on_build_logs=lines, **server.sdk)
    return name, lines


def check_use(server: Server, sandbox: Sandbox) -> None:
    """What any client does first: commands, another user, files, a pause."""
    run = sandbox.commands.run
    assert run("cat ~/note /tmp/builder").stdout == "built\nuser\n"
    assert run("id -un", user="root").stdout == "root\n"
    sandbox.files.write("/home/user/a/b.txt", "text ü")
    assert run("cat ~/a/b.txt").stdout == "text ü"
    assert [entry.name for entry in sandbox.files.list("/home/user/a")] == ["b.txt"]
    waiting = run("sleep 600", background=True)
    sandbox.pause()
    again = Sandbox.connect(sandbox.sandbox_id, **server.sdk)
    assert again.commands.run("cat ~/a/b.txt").stdout == "text ü"
    assert waiting.pid > 1


@pytest.mark.parametrize("name", list(DEBIANS))
def test_another_debian_is_pulled_built_upon_and_used(server: Server, registry: Registry, name: str) -> None:
    suite, version = DEBIANS[name]
    made, lines = template(server, f"{registry.address}/debian:{version}")
    assert lines.has("pulled from its registry")
    sandbox = server.create(made)
    try:
        release = sandbox.commands.run("cat /built; cat /etc/debian_version").stdout
        assert f"VERSION_CODENAME={suite}" in release and f'VERSION_ID="{version}"' in release
        assert sandbox.commands.run("dpkg-query -W -f '${Version}' libc6").stdout.startswith(LIBC[version])
        check_use(server, sandbox)
    finally:
        sandbox.kill()


def test_a_root_filesystem_without_glibc_is_pulled_built_upon_and_used(server: Server, registry: Registry) -> None:
    made, lines = template(server, f"{registry.address}/musl:1")
    assert lines.has("pulled from its registry")
    sandbox = server.create(made)
    try:
        assert "ID=musl-busybox" in sandbox.commands.run("cat /built").stdout
        assert sandbox.commands.run("hello").stdout == "hello from musl\n"
        assert sandbox.commands.run("ls /lib").stdout.split() == ["ld-musl-x86_64.so.1"]
        check_use(server, sandbox)
    finally:
        sandbox.kill()
