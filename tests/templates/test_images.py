"""Images from a real registry on loopback: names, digests, credentials, whiteouts, and images that lie."""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import Template
from e2b.exceptions import BuildException
from tests.e2e.server import Server
from tests.templates import registry as registries
from tests.templates.conftest import Build, Lines
from tests.templates.registry import Entry, Registry, image, shell

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy

LOGIN = "reader:secret-of-the-tests"
DIRECTORY = {"type": tarfile.DIRTYPE, "mode": 0o755}


def link(to: str) -> dict[str, object]:
    return {"type": tarfile.SYMTYPE, "linkname": to}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, registry_port: int) -> Iterator[Registry]:
    with registries.running(tmp_path_factory.mktemp("registry"), registry_port, LOGIN) as registry:
        yield registry


@pytest.fixture(scope="module")
def tools(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small image of three layers; the upper ones take away and replace."""
    first: list[Entry] = [
        *shell(),
        ("opt", DIRECTORY, b""),
        ("opt/kept", {"mode": 0o600, "uid": 7, "gid": 8}, b"kept\n"),
        ("opt/gone", {}, b"x"),
        ("data/old", {}, b"x"),
        ("data/sub/older", {}, b"x"),
        ("way", link("/opt"), b""),
    ]
    second: list[Entry] = [("opt/.wh.gone", {}, b""), ("data/new", {}, b"new\n"), ("data/.wh..wh..opq", {}, b"")]
    third: list[Entry] = [
        ("way/through", {}, b"through\n"),
        ("opt/hard", {"type": tarfile.LNKTYPE, "linkname": "opt/kept"}, b""),
    ]
    layout = image(tmp_path_factory.mktemp("tools"), [first, second, third], ["--config.env", "FLAVOUR=plain"])
    registry.push(layout, "team/tools:1")
    return f"{registry.address}/team/tools:1"


def credentials() -> dict[str, str]:
    user, _, password = LOGIN.partition(":")
    return {"username": user, "password": password}


def test_an_image_without_anything_becomes_a_template(server: Server, build: Build, tools: str) -> None:
    name, lines = f"tools-{uuid.uuid4().hex[:8]}", Lines()
    recipe = (
        Template().from_image(tools, **credentials()).run_cmd('echo "$FLAVOUR" > ~/flavour; cat /opt/kept', user="root")
    )
    build(recipe, name, on_build_logs=lines)
    assert lines.has("pulled from its registry") and lines.has("kept")
    sandbox = server.create(name)
    try:
        run = sandbox.commands.run
        assert run("ls /opt /data; cat /opt/through").stdout.split() == [
            "/data:",
            "new",
            "/opt:",
            "hard",
            "kept",
            "through",
            "through",
        ]
        assert run("cat /root/flavour", user="root").stdout == "plain\n"
        assert run("ls -ln /opt/hard", user="root").stdout.split()[1:4] == ["2", "7", "8"]
        assert run("cat ~/x 2>/dev/null || echo $HOME").stdout == "/home/user\n"
    finally:
        sandbox.kill()


def test_an_image_is_pulled_once_and_by_its_digest(build: Build, tools: str, registry: Registry) -> None:
    digest = registry.digest("team/tools", "1")
    lines = Lines()
    by_digest = tools.rpartition(":")[0] + "@" + digest
    build(Template().from_image(by_digest, **credentials()), f"digest-{uuid.uuid4().hex[:8]}", on_build_logs=lines)
    assert lines.has("already here") or lines.has("pulled from its registry")
    wrong = tools.rpartition(":")[0] + "@sha256:" + "0" * 64
    with pytest.raises(BuildException, match="no such image or tag"):
        build(Template().from_image(wrong, **credentials()), f"digest-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize(
    ("name", "login", "message"),
    [
        ("team/tools:2", True, "no such image or tag"),
        ("team/other", True, "no such image or tag"),
        ("team/tools:1", False, "asks for credentials"),
    ],
)
def test_what_the_registry_refuses_is_told(
    build: Build, registry: Registry, tools: str, name: str, login: bool, message: str
) -> None:
    recipe = Template().from_image(f"{registry.address}/{name}", **(credentials() if login else {}))
    with pytest.raises(BuildException, match=message):
        build(recipe, f"refused-{uuid.uuid4().hex[:8]}")


def test_wrong_credentials_are_told_without_the_password(build: Build, tools: str) -> None:
    with pytest.raises(BuildException, match="refuses these credentials") as failure:
        build(Template().from_image(tools, username="reader", password="hunter2"), f"wrong-{uuid.uuid4().hex[:8]}")
    assert "hunter2" not in str(failure.value)


def test_a_layer_that_was_tampered_with_is_not_used(build: Build, registry: Registry, tmp_path: Path) -> None:
    layout = image(tmp_path, [[*shell(), ("mark", {}, uuid.uuid4().bytes)]])
    registry.push(layout, "team/bent")
    manifest = registries.manifest_of(layout)
    digest = manifest["layers"][0]["digest"].removeprefix("sha256:")  # type: ignore[index]
    (blob,) = registry.directory.glob(f"storage/docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data")
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(bytes(content))
    with pytest.raises(BuildException, match=r"a layer that is not sha256:|cannot be reached"):
        build(Template().from_image(f"{registry.address}/team/bent", **credentials()), f"bent-{uuid.uuid4().hex[:8]}")


def test_a_layer_may_be_compressed_with_zstd(build: Build, registry: Registry, tmp_path: Path) -> None:
    layout = image(tmp_path, [[*shell(), ("mark", {}, b"packed tightly\n")]])
    registry.push(layout, "team/tight", "--dest-compress-format", "zstd")
    kinds = [layer["mediaType"] for layer in registry.manifest("team/tight")["layers"]]
    assert kinds == ["application/vnd.oci.image.layer.v1.tar+zstd"]
    lines = Lines()
    recipe = Template().from_image(f"{registry.address}/team/tight", **credentials()).run_cmd("cat /mark")
    build(recipe, f"tight-{uuid.uuid4().hex[:8]}", on_build_logs=lines)
    assert lines.has("packed tightly")


def test_an_image_is_not_taken_for_another_with_the_same_configuration(
    build: Build, registry: Registry, tmp_path: Path
) -> None:
    """Else whoever has a registry could put files into images that others on this server use."""
    layouts = []
    for name in ("true", "false"):
        directory = tmp_path / str(len(layouts))
        directory.mkdir()
        layouts.append(image(directory, [[*shell(), ("mark", {}, f"{name} {tmp_path.name}\n".encode())]]))
    genuine, other = layouts[0], layouts[1]
    registry.push(genuine, "team/genuine")
    registries.disguise(genuine, other)
    registry.push(genuine, "team/disguised")
    for name, said in (("disguised", "false"), ("genuine", "true")):
        lines = Lines()
        recipe = Template().from_image(f"{registry.address}/team/{name}", **credentials()).run_cmd("cat /mark")
        build(recipe, f"{name}-{uuid.uuid4().hex[:8]}", on_build_logs=lines)
        assert lines.has(f"{said} {tmp_path.name}")


def test_links_in_layers_cannot_lead_out_of_the_image(build: Build, registry: Registry, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    first: list[Entry] = [
        *shell(),
        (str(outside).lstrip("/"), DIRECTORY, b""),
        ("way", link(str(outside)), b""),
        ("up", link("../../../../.." + str(outside)), b""),
    ]
    second: list[Entry] = [("way/one", {}, b"x"), ("up/two", {}, b"x")]
    registry.push(image(tmp_path, [first, second]), "team/sly")
    build(Template().from_image(f"{registry.address}/team/sly", **credentials()), f"sly-{uuid.uuid4().hex[:8]}")
    assert list(outside.iterdir()) == []


def test_registries_at_private_addresses_need_the_operators_word(build: Build) -> None:
    with pytest.raises(BuildException, match="private address"):
        build(Template().from_image("127.0.0.1:1/x"), f"private-{uuid.uuid4().hex[:8]}")
    with pytest.raises(BuildException, match=r"private address|cannot be reached"):
        build(Template().from_image("localhost:1/x"), f"private-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("python:3.11-slim", "'base' of the local catalogue, Python 3.11 on Debian 12,"),
        ("e2bdev/base", "'base' of this"),
    ],
)
def test_well_known_images_come_from_the_catalogue_where_no_registry_answers(build: Build, ref: str, said: str) -> None:
    lines = Lines()
    build(Template().from_image(ref), f"known-{uuid.uuid4().hex[:8]}", on_build_logs=lines)
    assert lines.has("the stock template " + said)


@pytest.mark.parametrize("ref", ["ubuntu:22.04", "python:3.13", "node:20-alpine", "debian@sha256:" + "0" * 64])
def test_no_image_stands_in_for_another_version(build: Build, ref: str) -> None:
    with pytest.raises(BuildException, match=r"is not what it says; .* --allow-stand-in"):
        build(Template().from_image(ref), f"known-{uuid.uuid4().hex[:8]}")
