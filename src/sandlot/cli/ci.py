"""`ci`: what a CI job calls. A command with the job's files in a sandbox, or a task; logs as they come, reports copied out, a summary, an exit code."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import json
import os
import re
import shlex
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from sandlot.cli import client, execution, output
from sandlot.cli.options import of_instance, settings
from sandlot.cli.output import Failure

if TYPE_CHECKING:
    from e2b import Sandbox

WORK, SENT, FOUND = "/home/user/work", "/tmp/sandlot-ci.tar", "/tmp/sandlot-reports.tar"
MAX_SENT = 512 << 20
MAX_REPORTS, MAX_REPORT_FILES = 64 << 20, 500
WELL_ENDED = ("review", "done")
RESTING = ("review", "done", "needs_you", "failed", "cancelled")
_SUITE = re.compile(r"<(testsuites?)\b([^>]*)>")
_COUNT = re.compile(r'\b(tests|failures|errors|skipped)="(\d{1,9})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run came to, for the job's summary."""

    title: str
    is_well: bool
    seconds: float
    lines: tuple[str, ...] = ()

    def markdown(self) -> str:
        how = "✅" if self.is_well else "❌"
        return "\n".join([f"### {how} {_plain(self.title)}", "", *self.lines, f"- {self.seconds:.0f} s", ""])


@of_instance
def ci(
    *,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command and its arguments, after `--`.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(envvar="SANDLOT_URL", help="The server. Default: the one of this machine.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="SANDLOT_API_KEY", help="Its API key; better in the variable.", show_envvar=True),
    ] = None,
    template: Annotated[str | None, typer.Option("--template", "-t", help="What to start from. Default: base.")] = None,
    env: Annotated[list[str], typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Pass a variable on.")] = [],  # noqa: B006
    send: Annotated[
        Path | None, typer.Option(help="The directory that the command works in. Default: this one.")
    ] = None,
    junit: Annotated[
        list[str], typer.Option(metavar="PATTERN", help="Files to copy out, such as 'reports/*.xml'.")
    ] = [],  # noqa: B006
    timeout: Annotated[int, typer.Option(min=1, help="Most seconds that it may take.")] = 3600,
    internet: Annotated[bool, typer.Option(help="Whether the sandbox reaches the internet.")] = True,
    summary: Annotated[
        Path | None, typer.Option(envvar="GITHUB_STEP_SUMMARY", help="Append what it came to, as Markdown.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Instead of a command: what an agent is asked to do.")] = None,
    repository: Annotated[str | None, typer.Option(help="The task's repository, as in `repo list`.")] = None,
    base: Annotated[str | None, typer.Option(help="The task's branch to begin at.")] = None,
    agent: Annotated[str | None, typer.Option(help="Who does the task.")] = None,
    agent_command: Annotated[str | None, typer.Option(help="What the agent `command` runs.")] = None,
    check: Annotated[list[str], typer.Option(help="The task is done when this ends with 0.")] = [],  # noqa: B006
) -> None:
    """From any CI: run a command with the job's files in a sandbox, or hand over a task and wait for it.

    The command's output comes as it is written, its exit status is yours, and nothing stays on the server:
    `./sandlot ci --junit 'reports/*.xml' -- make test`.
    """
    if (task is None) == (not words):
        raise Failure("say what to run: a command after `--`, or --task", status=2)
    began = time.monotonic()
    if task is not None:
        asked = {"repository": repository, "prompt": task, "base": base, "agent": agent, "command": agent_command}
        wanted = {name: value for name, value in asked.items() if value is not None} | {"checks": list(check)}
        status, report = _Server(url, key).task(wanted, timeout, began)
    else:
        run = _CommandRun(send or Path(), junit, timeout)
        options = {"template": template, "timeout": timeout + 120, "allow_internet_access": internet}
        status, report = run.run(_sdk(url, key), list(words or ()), _variables(env), options, began)
    if summary is not None:
        with summary.open("a") as file:
            file.write(report.markdown() + "\n")
    raise typer.Exit(status)


def _sdk(url: str | None, key: str | None) -> type[Sandbox]:
    if url is None:
        return client.sdk(settings())
    if not key:
        raise Failure("the server's API key is missing: put it into SANDLOT_API_KEY", status=2)
    address = url.rstrip("/")
    values = {"E2B_API_URL": address, "E2B_API_KEY": key, "E2B_DOMAIN": urlsplit(address).netloc}
    if address.startswith("http:"):
        values["E2B_SANDBOX_URL"] = address
    os.environ.update(values)
    from e2b import Sandbox

    return Sandbox


def _variables(pairs: Sequence[str]) -> dict[str, str]:
    """`NAME` alone passes on what it has here."""
    return execution.parse_env([pair if "=" in pair else f"{pair}={os.environ.get(pair, '')}" for pair in pairs])


class _CommandRun:
    def __init__(self, place: Path, patterns: Sequence[str], timeout_s: int) -> None:
        self._place, self._patterns, self._timeout_s = place.resolve(), patterns, timeout_s
        self._sandbox: Any = None

    def run(
        self, sdk: type[Sandbox], words: Sequence[str], envs: dict[str, str], options: dict[str, Any], began: float
    ) -> tuple[int, Report]:
        archive = packed(self._place)

        def obtain() -> Any:
            self._sandbox = sdk.create(**options)
            self._sandbox.files.write(SENT, archive)
            self._sandbox.commands.run(f"mkdir -p {WORK} && tar -xf {SENT} -C {WORK} && rm {SENT}", timeout=300)
            return self._sandbox

        argv = ["timeout", str(self._timeout_s), *words]
        job = execution.Execution(obtain, argv, envs={"CI": "true", **envs}, cwd=WORK)
        copied: list[str] = []
        try:
            status = job.run(remove=False)
            if self._patterns and self._sandbox is not None:
                copied = self._copy_out()
        finally:
            with contextlib.suppress(Exception):
                if self._sandbox is not None:
                    self._sandbox.kill()
        lines = [f"- `{_plain(shlex.join(words))[:300]}` ended with exit code {status}"]
        if copied:
            lines.append(f"- {_tests([self._place / name for name in copied])}")
        title = "Passed" if status == 0 else "Failed"
        return status, Report(title=title, is_well=status == 0, seconds=time.monotonic() - began, lines=tuple(lines))

    def _copy_out(self) -> list[str]:
        """Only files that were asked for, at the same places here."""
        find = " -o ".join(f"-path {shlex.quote('./' + pattern)}" for pattern in self._patterns)
        script = (
            f"cd {WORK} && find . -type f \\( {find} \\) -print0 | head -z -n {MAX_REPORT_FILES} | "
            f"tar --null -T - -cf {FOUND} && stat -c %s {FOUND}"
        )
        size = int(self._sandbox.commands.run(script, timeout=120).stdout.strip() or 0)
        if size > MAX_REPORTS:
            output.warn(f"the reports are {size >> 20} MiB, more than {MAX_REPORTS >> 20}: they stay there")
            return []
        content = bytes(self._sandbox.files.read(FOUND, format="bytes"))[: MAX_REPORTS + 1]
        copied = list(unpacked(content, self._place, self._patterns))
        if not copied:
            output.warn(f"no file matches {', '.join(self._patterns)}")
        return copied


def packed(place: Path) -> bytes:
    """The files of a directory: of a git checkout, those that git knows or would take."""
    listed = subprocess.run(
        ["git", "-C", str(place), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True
    )
    if listed.returncode == 0:
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        names = [str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir() or path.is_symlink()]
    content, size = io.BytesIO(), 0
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names:
            path = place / name
            if not path.is_symlink() and not path.is_file():
                continue  # removed, or a submodule
            size += path.lstat().st_size
            if size > MAX_SENT:
                raise Failure(f"{place} has more than {MAX_SENT >> 20} MiB; name a smaller directory with --send")
            archive.add(path, arcname=name, recursive=False, filter=_nobodys)
    return content.getvalue()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpacked(content: bytes, place: Path, patterns: Sequence[str]) -> Iterator[str]:
    """Write the files that match, and nothing outside of the directory. What a sandbox sends is anybody's."""
    root, left = place.resolve(), MAX_REPORTS
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for number, member in enumerate(archive):
            name = str(PurePosixPath(member.name))
            wanted = any(fnmatch.fnmatchcase(name, str(PurePosixPath(pattern))) for pattern in patterns)
            if number >= MAX_REPORT_FILES or not member.isreg() or ".." in name.split("/") or name.startswith("/"):
                continue
            target = root / name
            left -= member.size
            if not wanted or left < 0 or target.is_symlink() or not target.parent.resolve().is_relative_to(root):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(member)
            target.write_bytes(source.read() if source is not None else b"")
            yield name


def _tests(paths: Sequence[Path]) -> str:
    """Counted without a parser of XML: the files are a stranger's."""
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for path in paths:
        text = path.read_bytes()[: 4 << 20].decode(errors="replace")
        suites = _SUITE.findall(text)
        whole = [each for each in suites if each[0] == "testsuites" and "tests=" in each[1]]
        for _, attributes in whole or [each for each in suites if each[0] == "testsuite"]:
            for name, count in _COUNT.findall(attributes):
                total[name] += int(count)
    bad = total["failures"] + total["errors"]
    return f"{total['tests']} tests, {bad} failed, {total['skipped']} skipped, in {len(paths)} files"


class _Server:
    """The platform's API of this machine's server, or of another one."""

    def __init__(self, url: str | None, key: str | None) -> None:
        self._url, self._key = (url or "").rstrip("/"), key or ""
        if url is not None and not key:
            raise Failure("the server's API key is missing: put it into SANDLOT_API_KEY", status=2)

    def task(self, wanted: dict[str, Any], timeout_s: int, began: float) -> tuple[int, Report]:
        """Hand it over, show what happens, and wait until it rests."""
        if "repository" not in wanted:
            raise Failure("say which --repository the task is about", status=2)
        id = str(self._ask("POST", "/tasks", wanted)["id"])
        output.say(f"task {id}")
        after = 0
        while True:
            task = self._ask("GET", f"/tasks/{quote(id)}")
            after = self._show(id, after)
            if task["state"] in RESTING:
                break
            if time.monotonic() - began > timeout_s:
                raise Failure(f"task {id} is {task['state']} after {timeout_s} s; it goes on without this job")
            time.sleep(1)
        well = task["state"] in WELL_ENDED
        lines = [f"- task `{id}`: {task['state'].replace('_', ' ')}"]
        lines += [f"- {_plain(task['reason'])[:1000]}"] if task["reason"] else []
        if task["pull_request"]:
            lines.append(f"- pull request {task['pull_request']['number']}: {task['pull_request']['url']}")
        cost = f", ${task['cost_usd']:.4f}" if task["cost_usd"] is not None else ""
        lines.append(f"- {task['tokens']['input']} tokens in, {task['tokens']['output']} out{cost}")
        for line in lines:
            output.say(line.removeprefix("- "))
        seconds = time.monotonic() - began
        return 0 if well else 1, Report(title=task["title"], is_well=well, seconds=seconds, lines=tuple(lines))

    def _show(self, id: str, after: int) -> int:
        for entry in self._ask("GET", f"/tasks/{quote(id)}/timeline?after={after}&limit=500")["entries"]:
            after = int(entry["seq"])
            if text := " ".join(str(entry["text"]).split()):
                print(f"{entry['kind']}: {_plain(text)[:500]}", flush=True)
        return after

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        if not self._url:
            return client.send(settings(), method, path, body)
        headers = {"X-API-KEY": self._key, "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Failure(
                f"the server at {self._url} says {error.code}: {error.read(2000).decode(errors='replace')}"
            ) from error
        except (OSError, ValueError) as error:
            raise Failure(f"the server at {self._url} does not answer ({error})") from error


def _plain(text: str) -> str:
    """For terminals and pages: nothing that they would obey, and no command of a CI's log."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return clean.replace("<", "&lt;").replace("::", ":\N{ZERO WIDTH SPACE}:")
