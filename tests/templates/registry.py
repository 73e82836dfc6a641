"""A real image registry on loopback, and small images made for it with the usual tools."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx

CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}
"""
START_LIMIT_S = 30


@dataclass(frozen=True)
class Registry:
    port: int
    directory: Path
    login: str | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def push(self, layout: Path, name: str, *options: str) -> None:
        credentials = ["--dest-creds", self.login] if self.login else []
        target = f"docker://{self.address}/{name}"
        run("skopeo", "copy", "--dest-tls-verify=false", *credentials, *options, f"oci:{layout}:latest", target)

    def digest(self, name: str, tag: str = "latest") -> str:
        return str(self._manifest(name, tag).headers["Docker-Content-Digest"])

    def manifest(self, name: str, tag: str = "latest") -> dict[str, Any]:
        return dict(self._manifest(name, tag).json())

    def _manifest(self, name: str, tag: str) -> httpx.Response:
        user, _, password = (self.login or "").partition(":")
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        url = f"http://{self.address}/v2/{name}/manifests/{tag}"
        return httpx.get(url, headers=headers, auth=(user, password) if user else None, trust_env=False)


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


@contextlib.contextmanager
def running(directory: Path, port: int, login: str | None = None) -> Iterator[Registry]:
    program = shutil.which("docker-registry")
    assert program is not None, "docker-registry is missing: apt-get install docker-registry skopeo umoci"
    auth = ""
    if login is not None:
        user, _, password = login.partition(":")
        hashed = subprocess.run(
            ["python3", "-c", "import crypt,sys; print(crypt.crypt(sys.argv[1], '$2b$04$' + 'abcdefghijklmnopqrstuv'))", password],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        (directory / "htpasswd").write_text(f"{user}:{hashed.stdout.strip()}\n")
        auth = f"auth: {{htpasswd: {{realm: tests, path: {directory / 'htpasswd'}}}}}"
    config = directory / "config.yml"
    config.write_text(CONFIG.format(root=directory / "storage", port=port, auth=auth))
    process = subprocess.Popen([program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/v2/", trust_env=False)
                break
            assert time.monotonic() < deadline and process.poll() is None, "the registry did not start"
            time.sleep(0.05)
        yield Registry(port, directory, login)
    finally:
        process.kill()
        process.wait()


Entry = tuple[str, dict[str, object], bytes]


def image(directory: Path, layers: Sequence[Sequence[Entry]], config: Sequence[str] = ()) -> Path:
    """An OCI layout with these layers, bottom first."""
    layout = directory / "layout"
    run("umoci", "init", "--layout", str(layout))
    run("umoci", "new", "--image", f"{layout}:latest")
    for number, entries in enumerate(layers):
        path = directory / f"{number}.tar"
        with tarfile.open(path, "w") as tar:
            for name, facts, content in entries:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                for key, value in facts.items():
                    setattr(info, key, value)
                tar.addfile(info, BytesIO(content))
        run("umoci", "raw", "add-layer", "--image", f"{layout}:latest", str(path))
    run("umoci", "config", "--image", f"{layout}:latest", *config)
    return layout


def shell() -> list[Entry]:
    """The least that runs a command: the host's own shell and what it loads."""
    found: list[Entry] = []
    for path in ("/bin/sh", "/bin/cat", "/bin/ls"):
        found.append((path.lstrip("/"), {"mode": 0o755}, Path(path).read_bytes()))
    wanted = subprocess.run(
        ["ldd", "/bin/ls", "/bin/sh", "/bin/cat"], capture_output=True, text=True, check=True
    ).stdout
    names = {
        word for line in wanted.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")
    }
    for name in sorted(names):
        found.append((name.lstrip("/"), {"mode": 0o755}, Path(name).read_bytes()))
    return found


def manifest_of(layout: Path) -> dict[str, object]:
    index = json.loads((layout / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    return json.loads((layout / "blobs" / "sha256" / digest).read_text())  # type: ignore[no-any-return]


def disguise(layout: Path, other: Path) -> None:
    """Give an image the layers of another one, and leave its configuration as it is."""
    mine, theirs = manifest_of(layout), manifest_of(other)
    shutil.copytree(other / "blobs", layout / "blobs", dirs_exist_ok=True)
    manifest = json.dumps({**mine, "layers": theirs["layers"]}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(manifest)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0].update(digest=f"sha256:{digest}", size=len(manifest))
    (layout / "index.json").write_text(json.dumps(index))
