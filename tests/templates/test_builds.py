"""Builds with the official SDK on a real server: steps, caching, errors, start commands, tags."""

from __future__ import annotations

import re
import time
import traceback
import uuid
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox, Template, wait_for_port
from e2b.exceptions import BuildException
from tests.e2e import leaks
from tests.e2e.server import Server
from tests.templates.conftest import READY_S, Build, Lines

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy

BUILD_MACHINE = re.compile(r"\bb[0-9a-f]{20}\b")


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_a_recipe_becomes_a_template_that_sandboxes_start_from(server: Server, build: Build, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.txt").write_text("hello\n")
    (tmp_path / "app" / "link").symlink_to("main.txt")
    name = unique("recipe")
    template = (
        Template(file_context_path=str(tmp_path))
        .from_base_image()
        .set_user("worker")
        .set_workdir("/srv/app")
        .copy("app", ".", mode=0o640)
        .set_envs({"GREETING": "hi there", "SHOWN": "$GREETING!"})
        .run_cmd('echo "$SHOWN" > greeting; rm -f ~/.bashrc; whoami > who')
        .run_cmd("touch /usr/local/by-root", user="root")
    )
    build(template, name)
    sandbox = server.create(name)
    try:
        run = sandbox.commands.run
        assert run("pwd; whoami").stdout.split() == ["/srv/app", "worker"]
        assert run("cat main.txt link greeting who").stdout == "hello\nhello\nhi there!\nworker\n"
        assert run("stat -c '%U %a' main.txt; stat -c %U /usr/local/by-root").stdout.split() == [
            "worker",
            "640",
            "root",
        ]
        assert run("ls -A ~").stdout.find(".bashrc") == -1, "what a step deleted is back"
        assert run("echo -n $GREETING").stdout == "", "variables of the recipe are for the build and its start command"
    finally:
        sandbox.kill()


def test_a_build_without_changes_comes_from_the_cache_and_a_change_runs_only_what_follows(build: Build) -> None:
    def recipe(last: str) -> object:
        return Template().from_base_image().run_cmd("date +%N > first").run_cmd(f"cat first; echo {last}")

    name = unique("cache")
    first, again, changed, forced = Lines(), Lines(), Lines(), Lines()
    build(recipe("one"), name, on_build_logs=first)
    build(recipe("one"), name, on_build_logs=again)
    build(recipe("two"), name, on_build_logs=changed)
    build(recipe("two"), name, on_build_logs=forced, skip_cache=True)
    assert first.has("0 of 2 steps from the cache") and again.has("2 of 2 steps from the cache")
    assert changed.has("[1] CACHED") and not changed.has("[2] CACHED") and forced.has("0 of 2 steps")
    number = next(line for line in first.all if line.isdigit())
    assert number in changed.all and number not in forced.all


def test_more_free_disk_than_sandboxes_get_is_a_wish_that_the_log_answers(build: Build) -> None:
    modest, greedy = Lines(), Lines()
    build(Template().from_base_image(), unique("modest"), min_free_disk_mb=64, on_build_logs=modest)
    build(Template().from_base_image(), unique("greedy"), min_free_disk_mb=1 << 20, on_build_logs=greedy)
    assert not modest.has("free disk")
    wish, base = (line for line in greedy.all if "free disk" in line or line.startswith("FROM"))
    assert wish.startswith("1048576 MiB of free disk were asked for") and base.startswith("FROM")


def test_a_failing_step_is_told_with_its_output_and_the_users_own_line(build: Build) -> None:
    lines = Lines()
    template = Template().from_base_image().run_cmd("true")
    template = template.run_cmd("echo out; echo err >&2; exit 3")  # the line in question
    with pytest.raises(BuildException, match=r"failed to run command 'echo out.*exit status 3") as failure:
        build(template, unique("failing"), on_build_logs=lines)
    assert lines.has("out") and lines.has("err")
    assert "the line in question" in "".join(traceback.format_tb(failure.value.__traceback__))


@pytest.mark.parametrize(
    ("template", "message", "step"),
    [
        (
            lambda: Template().from_base_image().run_cmd("whoami", user="nobody-here"),
            "invalid username: 'nobody-here'",
            "1",
        ),
        (lambda: Template().from_base_image().set_user("; exit 1"), "invalid user name", "1"),
        (lambda: Template().from_base_image().set_workdir("/etc/passwd/x"), "failed to create workdir", "1"),
        (lambda: Template().from_template("no-such-template"), "'no-such-template' not found", "base"),
        (lambda: Template().from_image("no.such.registry.invalid/x"), "cannot be reached", "base"),
        (lambda: Template().from_image("Not An Image"), "is not the name of an image", "base"),
        (lambda: Template().from_base_image().set_start_cmd("exit 4", wait_for_port(1)), "exit status 4", "finalize"),
        (
            lambda: Template().from_base_image().set_start_cmd("sleep 60", wait_for_port(1)),
            f"did not succeed within {READY_S} s",
            "finalize",
        ),
        (
            lambda: Template().from_base_image().run_cmd("head -c 300M /dev/zero > ~/big"),
            "exit status 1; the disk of the build, 192 MiB, is full",
            "1",
        ),
        (
            lambda: Template().from_base_image().run_cmd("python3 -c 'b = bytearray(3 << 30)'"),
            "because the sandbox was out of memory",
            "1",
        ),
    ],
    ids=["user", "user-name", "workdir", "template", "registry", "image", "start", "ready", "disk-full", "memory"],
)
def test_what_goes_wrong_is_told_with_its_step_and_leaves_nothing(
    server: Server, template: object, message: str, step: str
) -> None:
    name = unique("wrong")
    info = Template.build_in_background(template(), name, **server.sdk)  # type: ignore[operator]
    status = Template.get_build_status(info, **server.sdk)
    deadline = time.monotonic() + 60
    while status.status.value in ("waiting", "building") and time.monotonic() < deadline:
        time.sleep(0.1)
        status = Template.get_build_status(info, **server.sdk)
    assert status.status.value == "error" and status.reason is not None
    assert message in status.reason.message and status.reason.step == step
    with server.http() as client:
        assert client.post("/v2/sandboxes", json={"templateID": name}).status_code == 404
    assert not [line for line in leaks.traces(server.data_dir) if BUILD_MACHINE.search(line)]


def test_builds_that_go_wrong_leave_those_beside_them_alone(server: Server) -> None:
    name = unique("beside")
    good = Template().from_base_image().run_cmd("for n in 1 2 3 4; do echo $n; sleep 1; done > ~/counted")
    info = Template.build_in_background(good, name, cpu_count=1, memory_mb=512, **server.sdk)
    for wrong in (
        "head -c 300M /dev/zero > ~/big",
        "kill -9 -1; exit 1",
        "rm -rf --no-preserve-root / 2>/dev/null; false",
    ):
        with pytest.raises(BuildException):
            Template.build(Template().from_base_image().run_cmd(wrong, user="root"), unique("wrong"), **server.sdk)
    deadline = time.monotonic() + 60
    while (status := Template.get_build_status(info, **server.sdk)).status.value == "building":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert status.status.value == "ready"
    sandbox = server.create(name)
    assert sandbox.files.read("counted") == "1\n2\n3\n4\n"
    sandbox.kill()


def test_a_start_command_is_up_when_a_sandbox_begins(server: Server, build: Build) -> None:
    name = unique("service")
    template = (
        Template()
        .from_base_image()
        .set_envs({"ROOT": "/srv"})
        .run_cmd("echo served > /srv/page", user="root")
        .set_start_cmd("python3 -m http.server 8123 --directory $ROOT", wait_for_port(8123))
    )
    build(template, name)
    sandbox = server.create(name)
    try:
        address = f"http://127.0.0.1:{server.port}/page"
        headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8123"}
        assert httpx.get(address, headers=headers, trust_env=False).text == "served\n"
    finally:
        sandbox.kill()


def test_tags_name_builds_and_a_template_in_use_stays(server: Server, build: Build) -> None:
    name = unique("tags")
    one, two = (Template().from_base_image().run_cmd(f"echo {text} > ~/version") for text in ("one", "two"))
    build(one, f"{name}:v1")
    assert Template.exists(name, **server.sdk)
    with server.http() as client:
        assert (
            client.post("/v2/sandboxes", json={"templateID": name}).status_code == 404
        )  # nothing is tagged default yet
        build(two, name)
        Template.assign_tags(f"{name}:v1", ["stable"], **server.sdk)
        for ref, version in (
            (name, "two"),
            (f"{name}:default", "two"),
            (f"{name}:stable", "one"),
            (f"{name}:v1", "one"),
        ):
            sandbox = server.create(ref)
            assert sandbox.files.read("version") == f"{version}\n"
            if ref != f"{name}:v1":
                sandbox.kill()
        refused = client.delete(f"/templates/{name}")
        assert refused.status_code == 400 and "in use" in refused.json()["message"]
        sandbox.kill()
        Template.remove_tags(name, "v1", **server.sdk)
        assert {tag.tag for tag in Template.get_tags(name, **server.sdk)} == {"default", "stable"}
        assert client.request("DELETE", "/templates/tags", json={"name": name, "tags": ["default"]}).status_code == 400
        assert client.delete(f"/templates/{name}").status_code == 204
    assert not Template.exists(name, **server.sdk)


def test_a_template_builds_upon_another_and_inherits_what_it_runs(server: Server, build: Build) -> None:
    parent, child = unique("parent"), unique("child")
    start = "python3 -m http.server 8124"
    build(Template().from_base_image().set_workdir("/srv/x").set_start_cmd(start, wait_for_port(8124)), parent)
    build(Template().from_template(parent).run_cmd("sudo touch y"), child)
    sandbox = server.create(child)
    try:
        assert sandbox.commands.run("pwd; ls; pgrep -fc http.serve[r]").stdout.split() == ["/srv/x", "y", "1"]
    finally:
        sandbox.kill()


def test_more_builds_than_slots_wait_and_say_so(server: Server) -> None:
    recipe = Template().from_base_image().run_cmd(f"sleep 6; echo {uuid.uuid4()}")
    infos = [Template.build_in_background(recipe, unique("queue"), **server.sdk) for _ in range(3)]
    deadline = time.monotonic() + 90
    seen = [Template.get_build_status(info, **server.sdk) for info in infos]
    assert any("waiting: 2 builds are running" in entry.message for entry in seen[-1].log_entries)
    while not all(each.status.value == "ready" for each in seen):
        assert time.monotonic() < deadline
        time.sleep(0.2)
        seen = [Template.get_build_status(info, **server.sdk) for info in infos]


def test_a_build_that_a_killed_server_was_running_fails_cleanly(tmp_path: Path, cache_dir: Path) -> None:
    server = Server(
        data_dir=tmp_path / "data",
        settings={"SANDLOT_CACHE_DIR": str(cache_dir), "SANDLOT_POOL_SIZE": "0"},
        options=("--no-hello",),
    )
    with server:
        recipe = Template().from_base_image().run_cmd("echo one > kept").run_cmd("sleep 30")
        info = Template.build_in_background(recipe, "killed", **server.sdk)
        deadline = time.monotonic() + 60
        while not any("[2]" in entry.message for entry in Template.get_build_status(info, **server.sdk).log_entries):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        server.kill_9()
        server.up()
        status = Template.get_build_status(info, **server.sdk)
        assert status.status.value == "error" and "the server stopped" in status.reason.message
        with server.http() as client:
            assert client.post("/v2/sandboxes", json={"templateID": "killed"}).status_code == 404
        lines = Lines()
        recipe = Template().from_base_image().run_cmd("echo one > kept").run_cmd("cat kept")
        Template.build(recipe, "killed", on_build_logs=lines, **server.sdk)
        assert lines.has("[1] CACHED")
    assert not leaks.owned(server.data_dir)


def test_the_sandboxes_of_a_snapshot_and_of_a_template_do_not_mix(server: Server, build: Build) -> None:
    name = unique("both")
    build(Template().from_base_image().run_cmd("echo built > ~/how"), name)
    sandbox = Sandbox.create(name, **server.sdk)
    try:
        snapshot = sandbox.create_snapshot(name=unique("snap"), **server.sdk)
        with pytest.raises(BuildException, match="it is a snapshot"):
            build(Template().from_template(snapshot.snapshot_id), unique("upon"))
    finally:
        sandbox.kill()
