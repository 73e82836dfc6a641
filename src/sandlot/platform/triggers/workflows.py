"""Jobs of GitHub's workflows as commands: which steps ran, with what environment, directory, shell and matrix; or why that cannot be done here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml  # type: ignore[import-untyped]

from sandlot.platform.core.proofs import Trial, TrialStep
from sandlot.platform.forges.github_reports import WorkflowJob
from sandlot.platform.triggers.expressions import (
    NotReproducible,
    Values,
    combinations,
    filled,
    has_expression,
    rendered,
)

MAX_STEPS, MAX_FAILED, MAX_PASSED = 40, 4, 4
SKIPPED = "skipped"
TOOL_SHELL = "sh {0}"  # of steps that only look for a tool
RED = ("failure", "timed_out")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_ENDED = re.compile(r"##\[error\]Process completed with exit code (\d{1,3})\.")
_SHELLS = {
    "": "bash -e {0}",
    "bash": "bash --noprofile --norc -eo pipefail {0}",
    "sh": "sh -e {0}",
    "python": "python3 {0}",
}
_NOTHING_TO_DO = ("actions/checkout", "actions/cache", "actions/upload-artifact")
_TOOLS = {
    "actions/setup-python": ("python3", "python-version"),
    "actions/setup-node": ("node", "node-version"),
    "actions/setup-go": ("go", "go-version"),
    "actions/setup-java": ("java", "java-version"),
    "actions/setup-dotnet": ("dotnet", "dotnet-version"),
    "astral-sh/setup-uv": ("uv", "version"),
    "pnpm/action-setup": ("pnpm", "version"),
    "oven-sh/setup-bun": ("bun", "bun-version"),
    "ruby/setup-ruby": ("ruby", "ruby-version"),
    "shivammathur/setup-php": ("php", "php-version"),
    "dtolnay/rust-toolchain": ("cargo", "toolchain"),
    "denoland/setup-deno": ("deno", "deno-version"),
}
# Inside a virtual environment `pip install` works, as it does at GitHub; what the sandbox has is there, too.
_PYTHON = """
place="$RUNNER_TEMP/python"
python3 -m venv --system-site-packages "$place" >/dev/null 2>&1 ||
    { mkdir -p "$place/bin" && ln -sf "$(command -v python3)" "$place/bin/python"; }
echo "$place/bin" >>"$GITHUB_PATH"
"""
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPlace:
    """Where a workflow ran. `has_template`: whoever wrote the rule says which template stands for its machine."""

    repository: str  # owner/name
    branch: str
    sha: str
    event: str = "push"
    number: int | None = None  # of the pull request
    has_template: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        owner, _, _ = self.repository.partition("/")
        is_pull = self.number is not None and self.event.startswith("pull_request")
        ref = f"refs/pull/{self.number}/merge" if is_pull else f"refs/heads/{self.branch}"
        return {
            "sha": self.sha,
            "ref": ref,
            "ref_name": self.branch,
            "head_ref": self.branch if is_pull else "",
            "repository": self.repository,
            "repository_owner": owner,
            "event_name": self.event,
            "run_attempt": "1",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    trials: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = field(default=())  # of jobs that failed and cannot be run here


def extracted(text: str, place: WorkflowPlace, jobs: Sequence[WorkflowJob]) -> Extracted:
    """Those that failed first; then some that passed, to see that they do not get worse."""
    try:
        workflow = _read(text)
    except NotReproducible as error:
        return Extracted(problems=(str(error),))
    trials: list[Trial] = []
    problems: list[str] = []
    for job in [job for job in jobs if job.conclusion in RED][:MAX_FAILED]:
        try:
            trials.append(_trial(workflow, place, job))
        except NotReproducible as error:
            problems.append(f"job {job.name!r}: {error}")
    passed = [job for job in jobs if job.conclusion == "success"] if trials else []
    for job in passed[: 2 * MAX_PASSED]:
        try:
            found = _trial(workflow, place, job)
        except NotReproducible:
            continue
        if len(trials) < MAX_FAILED + MAX_PASSED:
            trials.append(found)
    return Extracted(trials=tuple(trials), problems=tuple(problems))


def _read(text: str) -> Record:
    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        raise NotReproducible("the workflow's file cannot be read") from None
    if not isinstance(found, Mapping) or not isinstance(found.get("jobs"), Mapping):
        raise NotReproducible("the workflow's file has no jobs")
    return found


def _trial(workflow: Record, place: WorkflowPlace, job: WorkflowJob) -> Trial:
    described, matrix = _job(workflow["jobs"], job.name)
    if "uses" in described:
        raise NotReproducible("it is a workflow of its own, which is called")
    if job.conclusion not in RED and "environment" in described:
        raise NotReproducible("it deploys")
    values: dict[str, Mapping[str, Any]] = {
        "matrix": matrix,
        "github": place.facts,
        "runner": {"os": "Linux", "arch": "X64", "name": "sandlot", "debug": ""},
        "env": {},
    }
    _check_machine(described, values, place.has_template)
    environment = {**_environment(workflow.get("env"), values), **_environment(described.get("env"), values)}
    values["env"] = environment
    steps, notes = _steps(workflow, described, job, values)
    told = {f"GITHUB_{name.upper()}": str(value) for name, value in place.facts.items()}
    return Trial(
        name=job.name,
        steps=steps,
        failed=job.conclusion in RED,
        exit_code=_exit_code(job.log),
        environment={**told, "GITHUB_JOB": re.sub(r"[^\w-]", "-", job.name)[:100], **environment},
        notes=notes,
    )


def _job(jobs: Record, name: str) -> tuple[Record, Record]:
    """The description of the job that GitHub shows under this name, with its values of the matrix."""
    problem = "GitHub calls it by a name that is not in the workflow's file"
    for id, job in list(jobs.items())[:200]:
        if not isinstance(job, Mapping):
            continue
        try:
            for matrix in combinations(job):
                if _shown(str(id), job, matrix) == name:
                    return job, matrix
        except NotReproducible as error:
            if name == str(id) or name.startswith(f"{id} ("):
                problem = str(error)
    raise NotReproducible(problem)


def _shown(id: str, job: Record, matrix: Record) -> str:
    given = job.get("name")
    if has_expression(given):
        return filled(given, {"matrix": matrix})
    base = given if isinstance(given, str) and given else id
    return f"{base} ({', '.join(rendered(value) for value in matrix.values())})" if matrix else base


def _check_machine(job: Record, values: Values, has_template: bool) -> None:
    runs_on = job.get("runs-on")
    if isinstance(runs_on, Mapping):
        runs_on = runs_on.get("labels")
    labels = [filled(each, values).lower() for each in (runs_on if isinstance(runs_on, list) else [runs_on])]
    if any(word in label for label in labels for word in ("windows", "macos")):
        raise NotReproducible(f"it runs on {', '.join(labels)[:80]}, and sandboxes are Linux")
    if has_template:
        return
    for part, words in (("services", "it needs services"), ("container", "it runs in an image of its own")):
        if job.get(part):
            raise NotReproducible(f"{words}; name a template in the rule that has what it needs")


def _environment(given: Any, values: Values) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise NotReproducible("its environment is computed at GitHub")
    found = {}
    for name, value in list(given.items())[:200]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise NotReproducible(f"{str(name)[:80]!r} cannot be the name of a variable here")
        found[name] = filled(value, values).replace("\0", "")
    return found


def _steps(
    workflow: Record, job: Record, shown: WorkflowJob, values: dict[str, Mapping[str, Any]]
) -> tuple[tuple[TrialStep, ...], tuple[str, ...]]:
    """Up to the one that failed; of a job that passed, all of them."""
    described = job.get("steps")
    if not isinstance(described, list) or len(described) > MAX_STEPS:
        raise NotReproducible("its steps cannot be read")
    wanted = next((name for name, conclusion in shown.steps if conclusion in RED), None)
    if wanted is None and shown.conclusion in RED:
        raise NotReproducible("GitHub does not say which step failed")
    how = dict(shown.steps)
    steps: list[TrialStep] = []
    notes: list[str] = []
    for step in described:
        if not isinstance(step, Mapping):
            raise NotReproducible("its steps cannot be read")
        name = _step_name(step, values)
        ends = name == wanted
        if how.get(name) == SKIPPED or (name not in how and "if" in step):
            continue
        if "uses" in step:
            if ends:
                raise NotReproducible(f"the step {name!r} failed, and it is an action, not a command")
            if (found := _tool(step, name, values)) is not None:
                steps.append(found)
                notes.append(f"{name} is done with what the sandbox has")
        elif "run" in step:
            steps.append(_command(workflow, job, step, name, values))
        if ends:
            return tuple(steps), tuple(notes)
    if wanted is not None:
        raise NotReproducible(f"the step {wanted[:100]!r} is not in the workflow's file")
    if not any(step.shell != TOOL_SHELL for step in steps):
        raise NotReproducible("it has no commands")
    return tuple(steps), tuple(notes)


def _step_name(step: Record, values: Values) -> str:
    given = step.get("name")
    if isinstance(given, str) and given:
        return filled(given, values)
    if "run" in step:
        lines = [line.strip() for line in rendered(step["run"]).strip().splitlines() if line.strip()]
        return f"Run {filled(lines[0] if lines else '', values)}"
    return f"Run {rendered(step.get('uses'))}"


def _tool(step: Record, name: str, values: Values) -> TrialStep | None:
    """None: there is nothing to do for it here."""
    action = rendered(step["uses"]).partition("@")[0].strip()
    given = step.get("with")
    options: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if action == "actions/checkout" and any(options.get(each) for each in ("repository", "ref", "path")):
        raise NotReproducible(f"the step {name!r} checks out something else than the commit")
    if action in _NOTHING_TO_DO or action.startswith("actions/cache/"):
        return None
    if action not in _TOOLS:
        raise NotReproducible(f"the step {name!r} uses the action {action[:100]}, which does not run in a sandbox")
    program, option = _TOOLS[action]
    version = re.sub(r"[^\w.*^~<>= -]", "", filled(options.get(option, ""), values))[:40]
    script = f"command -v {program} || {{ echo 'this sandbox has no {program}' >&2; exit 1; }}\n"
    script += (
        f"{program} {'version' if program == 'go' else '--version'}\necho 'the workflow wants {version or 'any'}'\n"
    )
    return TrialStep(name=name, script=script + (_PYTHON if program == "python3" else ""), shell=TOOL_SHELL)


def _command(workflow: Record, job: Record, step: Record, name: str, values: dict[str, Mapping[str, Any]]) -> TrialStep:
    environment = _environment(step.get("env"), values)
    inside = {**values, "env": {**values["env"], **environment}}
    shell = step.get("shell") or _default(job, "shell") or _default(workflow, "shell") or ""
    directory = step.get("working-directory") or _default(job, "working-directory")
    directory = directory or _default(workflow, "working-directory") or "."
    place = filled(directory, inside).strip().removeprefix("./") or "."
    if place.startswith("/") or ".." in place.split("/") or "\0" in place:
        raise NotReproducible(f"the step {name!r} works outside of the checkout")
    return TrialStep(
        name=name,
        script=filled(step["run"], inside).replace("\r\n", "\n").replace("\0", ""),
        shell=_shell(filled(shell, inside).strip(), name),
        directory=place,
        environment=environment,
    )


def _shell(shell: str, name: str) -> str:
    if shell in _SHELLS:
        return _SHELLS[shell]
    if shell.count("{0}") == 1 and re.fullmatch(r"[\w./ {}=-]{1,200}", shell):
        return shell
    raise NotReproducible(f"the step {name!r} uses the shell {shell[:40]!r}, which sandboxes do not have")


def _default(of: Record, name: str) -> Any:
    defaults = of.get("defaults")
    run = defaults.get("run") if isinstance(defaults, Mapping) else None
    return run.get(name) if isinstance(run, Mapping) else None


def _exit_code(log: str | None) -> int | None:
    found = _ENDED.findall(log or "")
    return int(found[-1]) if found else None
