"""What commands print and how they fail, without a server or with one that only stands there."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, environment

from sandlot.server import instance

COMMANDS = (
    *("up", "down", "status", "env", "doctor", "run", "test"),
    *("sandbox list", "sandbox info", "sandbox exec", "sandbox logs", "sandbox kill"),
    *("key create", "key list", "key revoke", "team create", "team list", "team delete", "template list"),
)
Start = Callable[..., "subprocess.Popen[str]"]


def test_help_names_every_command(cli: Cli) -> None:
    text = cli("--help").stdout
    for name in {command.split()[0] for command in COMMANDS}:
        assert f" {name} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_in_plain_text_when_piped(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert "\x1b" not in done.stdout and "╭" not in done.stdout
    assert command == "test" or "--data-dir" in done.stdout


def test_help_does_not_load_the_heavy_libraries() -> None:
    code = "import sys, sandlot.cli.app; print([m for m in ('e2b', 'rich.console', 'sqlalchemy', 'pydantic', 'fastapi') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "command",
    ["env", "sandbox list", "sandbox info x", "sandbox logs x", "sandbox kill x", "template list", "run -- true"],
)
def test_without_a_server_the_command_that_starts_it_is_told(cli: Cli, data_dir: Path, command: str) -> None:
    done = cli(*command.split())
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"./sandlot up --detach --data-dir {shlex.quote(str(data_dir))}" in done.stderr


def test_an_instance_can_be_named_before_and_after_the_command(cli: Cli, tmp_path: Path) -> None:
    for arguments in (("--data-dir", "here", "env"), ("env", "--data-dir", "here")):
        assert str(Path.cwd() / "here") in cli(*arguments).stderr


def test_a_wrong_setting_is_named_with_its_value(cli: Cli) -> None:
    done = cli("env", SANDLOT_MAX_SANDBOXES="many")
    assert done.returncode == 1
    assert "SANDLOT_MAX_SANDBOXES is set to 'many'" in done.stderr


def test_status_without_a_server_says_so_in_both_forms(cli: Cli, data_dir: Path) -> None:
    plain, machine = cli("status"), cli("status", "--json")
    assert plain.returncode == machine.returncode == 3
    assert "./sandlot up" in plain.stderr
    record = json.loads(machine.stdout)
    assert record["running"] is False
    assert record["data_dir"] == str(data_dir)


def test_env_survives_eval_by_a_shell_whatever_the_values_are(standing_server: Start, cli: Cli) -> None:
    standing_server(url="http://127.0.0.1:3999/$(touch owned)'\"")
    wanted = json.loads(cli("env", "--json").stdout)
    assert wanted["E2B_API_KEY"] == "e2b_0123'abc"
    assert wanted["E2B_SANDBOX_URL"] == wanted["E2B_API_URL"] == wanted["E2B_VOLUME_API_URL"]
    assert wanted["E2B_DOMAIN"] == "localhost:3999"
    script = f'eval "$1"; exec {shlex.quote(sys.executable)} -c "import json, os; print(json.dumps(dict(os.environ)))"'
    shell = subprocess.run(["sh", "-c", script, "sh", cli("env").stdout], env={}, capture_output=True, text=True)
    got = json.loads(shell.stdout)
    assert {name: got.get(name) for name in wanted} == wanted


def test_env_as_a_dotenv_file_is_read_back_to_the_letter(standing_server: Start, cli: Cli, tmp_path: Path) -> None:
    standing_server(url="http://127.0.0.1:3999/$(touch owned)`id`\\\\'\"")
    wanted = json.loads(cli("env", "--json").stdout)
    file = tmp_path / ".env"
    file.write_text(cli("env", "--dotenv").stdout)
    script = (
        f'set -a; . "$1"; exec {shlex.quote(sys.executable)} -c "import json, os; print(json.dumps(dict(os.environ)))"'
    )
    shell = subprocess.run(["sh", "-c", script, "sh", str(file)], env={}, capture_output=True, text=True)
    got = json.loads(shell.stdout)
    assert {name: got.get(name) for name in wanted} == wanted


def test_env_for_docker_mounts_the_authorities_and_sets_the_same_variables(
    standing_server: Start, cli: Cli, tmp_path: Path, data_dir: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    standing_server(domain="sandlot.localhost", ca=str(ca))
    wanted = json.loads(cli("env", "--json").stdout)
    network, *options = shlex.split(cli("env", "--docker").stdout)
    assert network == "--network=host"
    bundle = data_dir / "ca-bundle.pem"
    assert options[0] == f"--volume={bundle}:{bundle}:ro" and bundle.stat().st_mode & 0o777 == 0o644
    assert options[1:] == [f"--env={name}={value}" for name, value in wanted.items()]


def test_env_with_tls_trusts_our_authority_beside_the_systems(
    standing_server: Start, cli: Cli, tmp_path: Path, data_dir: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    standing_server(url="https://sandlot.localhost:3999", domain="sandlot.localhost", ca=str(ca))
    values = json.loads(cli("env", "--json").stdout)
    assert "E2B_SANDBOX_URL" not in values
    assert "unset E2B_SANDBOX_URL;" in cli("env").stdout
    assert values["E2B_DOMAIN"] == "sandlot.localhost:3999"
    bundle = Path(values["SSL_CERT_FILE"])
    assert values["REQUESTS_CA_BUNDLE"] == values["NODE_EXTRA_CA_CERTS"] == str(bundle)
    assert bundle.read_text().endswith(ca.read_text())
    assert bundle.read_text().count("BEGIN CERTIFICATE") > 10
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o644


def test_down_ends_the_process_that_holds_the_data_directory(standing_server: Start, cli: Cli, data_dir: Path) -> None:
    child = standing_server()
    assert instance.holder(data_dir) == child.pid
    done = cli("down")
    assert done.returncode == 0, done.stderr
    assert "could not be ended" in done.stderr  # it answers nothing, so its sandboxes are left alone, and that is said
    assert child.wait(60) == -15
    assert cli("down").stderr.startswith("No server runs")


def test_down_never_touches_a_process_that_merely_has_the_recorded_pid(cli: Cli, data_dir: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        (data_dir / "server.lock").touch()
        facts = {"pid": bystander.pid, "url": "http://127.0.0.1:1", "port": 1, "domain": None, "started_at": ""}
        (data_dir / "server.json").write_text(json.dumps(facts))
        assert cli("down").stderr.startswith("No server runs")
        assert cli("status").returncode == 3
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_second_server_is_refused_the_data_directory(standing_server: Start, cli: Cli) -> None:
    child = standing_server()
    done = cli("serve")
    assert done.returncode == 1
    assert f"pid {child.pid}" in done.stderr and "./sandlot down" in done.stderr


def test_up_names_who_has_the_port(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = cli("up", "--detach", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "cannot be used: Address already in use" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert "--port N" in done.stderr


def test_keys_can_be_made_listed_and_revoked_while_no_server_runs(cli: Cli) -> None:
    made = cli("key", "create", "for the robot")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("e2b_") and "\n" not in secret
    [key] = json.loads(cli("key", "list", "--json").stdout)
    assert key["name"] == "for the robot"
    assert secret not in json.dumps(key) and "digest" not in key
    assert key["id"] in cli("key", "list").stdout
    assert cli("key", "revoke", key["id"]).returncode == 0
    assert json.loads(cli("key", "list", "--json").stdout) == []
    [revoked] = json.loads(cli("key", "list", "--all", "--json").stdout)
    assert revoked["revoked_at"]
    again = cli("key", "revoke", key["id"])
    assert again.returncode == 1 and "./sandlot key list" in again.stderr


def test_teams_can_be_made_given_keys_and_deleted(cli: Cli) -> None:
    assert cli("team", "create", "Not A Name").returncode == 1
    made = json.loads(cli("team", "create", "red", "--json").stdout)
    again = cli("team", "create", "red")
    assert again.returncode == 1 and "'red' already" in again.stderr
    key = json.loads(cli("key", "create", "robot", "--team", "red", "--json").stdout)
    assert key["team_id"] == made["id"]
    cli("key", "create", "of the first team")
    [listed] = json.loads(cli("key", "list", "--team", "red", "--json").stdout)
    assert (listed["id"], listed["team"]) == (key["id"], "red")
    assert {row["name"]: row["keys"] for row in json.loads(cli("team", "list", "--json").stdout)} == {
        "default": 1,
        "red": 1,
    }
    assert "first team" in cli("team", "delete", "default").stderr
    assert cli("team", "delete", "red").returncode == 0
    assert [row["name"] for row in json.loads(cli("team", "list", "--json").stdout)] == ["default"]
    assert [row["name"] for row in json.loads(cli("key", "list", "--all", "--json").stdout)] == ["of the first team"]
    gone = cli("key", "create", "robot", "--team", "red")
    assert gone.returncode == 1 and "./sandlot team list" in gone.stderr


def test_doctor_gives_each_failing_check_its_fix(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done, plain = cli("doctor", "--json", "--port", port), cli("doctor", "--port", port)
    assert done.returncode == plain.returncode == 1
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert findings["port"]["state"] == "fail"
    assert findings["port"]["fix"] in plain.stdout
    assert all(finding["fix"] for finding in findings.values() if finding["state"] != "ok")
    assert {"root", "kernel", "cgroups", "overlayfs", "nftables", "runtime gvisor", "runtime container"} <= set(
        findings
    )
    assert "\x1b" not in plain.stdout


def test_doctor_finds_a_domain_that_does_not_resolve(cli: Cli) -> None:
    done = cli("doctor", "--json", SANDLOT_DOMAIN="sandlot.invalid", SANDLOT_PORT="0")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert findings["domain"]["state"] == "fail"


def test_an_ordinary_user_is_told_to_use_sudo(data_dir: Path, tmp_path: Path) -> None:
    data_dir.chmod(0o711)
    (data_dir / "server.lock").touch(mode=0o600)
    # The checkout may be closed to other users, so the process starts as root and gives that up.
    code = (
        "import os, sys\n"
        "from sandlot.cli import app, preparation, client\n"
        "import typer, sandlot.settings, sandlot.setup.checks, sandlot.engine.node.images.layers\n"
        "app.app(['up', '--help'], standalone_mode=False)\n"  # imports what any command does
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.argv[1:] = sys.argv[1:]\n"
        "app.main()\n"
    )
    for command in ("up", "env", "status", "down"):
        done = subprocess.run(
            [sys.executable, "-c", code, command],
            env=environment(SANDLOT_DATA_DIR=str(data_dir)),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 1, (command, done.stderr)
        assert "sudo ./sandlot" in done.stderr
