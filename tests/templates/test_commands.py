"""Templates through the command line: Dockerfiles with stages and arguments, e2b.toml, imports, deletion."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.templates.registry import image, run, shell

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy

MULTI_STAGE = """
ARG GREETING=hello
FROM e2bdev/base AS maker
ARG GREETING
RUN mkdir -p /out/sub && echo "$GREETING" > /out/greeting && echo deep > /out/sub/deep
FROM e2bdev/base
COPY --from=maker /out /srv/made
COPY local.txt /srv/
WORKDIR /srv
"""


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def look(server: Server, template: str, command: str) -> str:
    sandbox = server.create(template)
    try:
        return sandbox.commands.run(command).stdout
    finally:
        sandbox.kill()


def test_a_dockerfile_with_stages_and_arguments(server: Server, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(MULTI_STAGE)
    (tmp_path / "local.txt").write_text("local\n")
    name = unique("stages")
    options = ("--name", name, "--build-arg", "GREETING=good morning", "--cpus", "1", "--memory", "512", "--json")
    done = server.cli("template", "build", "-f", str(tmp_path / "Dockerfile"), *options)
    assert json.loads(done.stdout)[0]["name"] == name and "FROM e2bdev/base" in done.stderr
    seen = look(server, name, "cat made/greeting made/sub/deep local.txt; pwd; whoami")
    assert seen == "good morning\ndeep\nlocal\n/srv\nuser\n"


def test_an_older_e2b_project(server: Server, tmp_path: Path) -> None:
    name = unique("older")
    (tmp_path / "e2b.Dockerfile").write_text("FROM e2bdev/base\nRUN echo built > /etc/how\n")
    start = 'start_cmd = "python3 -m http.server 8125"\nready_cmd = "ss -Htln sport = :8125 | grep -q ."\n'
    (tmp_path / "e2b.toml").write_text(
        f'template_name = "{name}"\ndockerfile = "e2b.Dockerfile"\ncpu_count = 1\nmemory_mb = 512\n{start}'
    )
    server.cli("template", "build", cwd=tmp_path)
    assert look(server, name, "cat /etc/how; curl -sI localhost:8125 | head -1").split() == [
        "built",
        "HTTP/1.0",
        "200",
        "OK",
    ]
    listed = json.loads(server.cli("template", "list", "--json").stdout)
    assert [(row["cpuCount"], row["memoryMB"]) for row in listed if name in row["names"]] == [(1, 512)]
    server.cli("template", "delete", name)
    assert server.cli("template", "delete", name, check=False).returncode == 1


def test_failures_are_one_message(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    for text, message in (
        ("FROM e2bdev/base\nRUN exit 3", "exit status 3"),
        ("RUN true", "no FROM"),
        ("FROM e2bdev/base\nCOPY --from=nobody /x /y", "only earlier stages"),
        ("FROM e2bdev/base\nCOPY missing /y", "missing"),
    ):
        file.write_text(text)
        done = server.cli("template", "build", "-f", str(file), "--name", unique("bad"), check=False)
        assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = server.cli("template", "build", "-f", str(file), "--name", "x", "--build-arg", "NO=1", check=False)
    assert "no ARG of that name" in done.stderr
    assert "no Dockerfile" in server.cli("template", "build", "--name", "x", check=False, cwd=tmp_path / "..").stderr


@pytest.mark.parametrize("form", ["layout", "layout-archive", "docker-save"])
def test_an_image_in_a_file_becomes_a_template(server: Server, tmp_path: Path, form: str) -> None:
    layout = image(tmp_path, [[*shell(), ("mark", {}, form.encode())]])
    source = layout
    if form == "layout-archive":
        source = tmp_path / "layout.tar"
        run("tar", "-C", str(layout), "-cf", str(source), ".")
    elif form == "docker-save":
        source = tmp_path / "saved.tar"
        run("skopeo", "copy", f"oci:{layout}:latest", f"docker-archive:{source}:some/name:1")
    name = unique("imported")
    server.cli("template", "import", str(source), "--name", name)
    assert look(server, name, "cat /mark; echo; echo $HOME") == f"{form}\n/home/user\n"


def test_a_damaged_image_is_not_imported(server: Server, tmp_path: Path) -> None:
    layout = image(tmp_path, [[*shell(), ("mark", {}, b"x")]])
    largest = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    done = server.cli("template", "import", str(layout), "--name", unique("damaged"), check=False)
    assert done.returncode == 1 and "is damaged" in done.stderr
