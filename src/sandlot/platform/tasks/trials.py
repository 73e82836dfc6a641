"""Trials as shell scripts: a fresh checkout of one commit, the steps that prepare, the step that counts; and what an exit code of it means."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from sandlot.platform.core.proofs import Trial, TrialRun, TrialStep
from sandlot.platform.core.tasks import CheckResult

HOME = "/home/user"
GREEN, RED, NOT_PREPARED, NO_CHECKOUT = 0, 1, 90, 91
MAX_OUTPUT = 8000
_STEP = re.compile(r"^sandlot: step (\d+) of \d+: (.*)$", re.MULTILINE)
_CODE = re.compile(r"^sandlot: exit code (\d+)$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# What steps write for later steps is read as GitHub reads it; names that no shell takes are passed over.
_BEGIN = r"""
work=@work@ temp=@temp@
rm -rf "$work" "$temp" && mkdir -p "$temp/steps" "${work%/*}" || exit 91
git -c advice.detachedHead=false clone --quiet --shared --no-checkout @checkout@ "$work" &&
    cd "$work" && git checkout --quiet --detach "$(git -C @checkout@ rev-parse --verify @commit@)" || exit 91
export CI=true GITHUB_ACTIONS=true GITHUB_WORKSPACE="$work" RUNNER_TEMP="$temp" RUNNER_OS=Linux RUNNER_ARCH=X64
export GITHUB_ENV="$temp/env" GITHUB_PATH="$temp/path" GITHUB_OUTPUT="$temp/output" GITHUB_STEP_SUMMARY="$temp/summary"
@environment@
: >"$GITHUB_ENV"; : >"$GITHUB_PATH"
later() {
    while IFS= read -r line; do
        case $line in
        *'<<'*) name=${line%%<<*} end=${line#*<<} value= first=1
            while IFS= read -r more && [ "$more" != "$end" ]; do
                [ -n "$first" ] && value=$more || value="$value
$more"; first=
            done ;;
        *=*) name=${line%%=*} value=${line#*=} ;;
        *) continue ;;
        esac
        case $name in ''|[0-9]*|*[!A-Za-z0-9_]*) continue ;; esac
        export "$name=$value"
    done <"$GITHUB_ENV"
    while IFS= read -r line; do [ -z "$line" ] || PATH="$line:$PATH"; done <"$GITHUB_PATH"
    export PATH; : >"$GITHUB_ENV"; : >"$GITHUB_PATH"
}
ended() { [ "$1" = 0 ] || { printf '\nsandlot: exit code %s\n' "$1"; exit "$2"; }; }
"""
_ONE = r"""
printf '\nsandlot: step @number@ of @count@: %s\n' @name@
printf %s @script@ | base64 -d >"$temp/steps/@number@" || exit 91
( @environment@ cd "$work"/@directory@ && exec @shell@ ) </dev/null 2>&1
ended $? @code@
later
"""


def trial_script(trial: Trial, *, checkout: str, repository: str, commit: str) -> str:
    """`commit` is a whole id, or the name of a ref of ours."""
    place = f"{HOME}/work/{repository}"
    script = _BEGIN
    for name, value in {
        "work": f"{place}/{repository}",
        "temp": f"{place}/_temp",
        "checkout": checkout,
        "commit": f"{commit}^{{commit}}",
    }.items():
        script = script.replace(f"@{name}@", shlex.quote(value))
    script = script.replace("@environment@", _exports(trial.environment))
    count = len(trial.steps)
    return script + "".join(_one(step, number, count) for number, step in enumerate(trial.steps, start=1))


def _one(step: TrialStep, number: int, count: int) -> str:
    file = f'"$temp/steps/{number}"'
    words = [file if word == "{0}" else shlex.quote(word) for word in step.shell.split()]
    values = {
        "number": str(number),
        "count": str(count),
        "name": shlex.quote(" ".join(step.name.split())[:200]),
        "environment": _exports(step.environment),
        "directory": shlex.quote(step.directory),
        "shell": " ".join(words),
        "code": str(RED if number == count else NOT_PREPARED),
        "script": base64.b64encode(step.script.encode(errors="replace")).decode(),
    }
    found = _ONE
    for name, value in values.items():
        found = found.replace(f"@{name}@", value)
    return found


def _exports(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)};" for name, value in environment.items())


def trial_run(trial: Trial, result: CheckResult) -> TrialRun:
    """What a run came to. Its output is the guest's; so are the words about steps in it."""
    output = _COLOUR.sub("", result.output.replace("\0", ""))
    steps, codes = _STEP.findall(output), _CODE.findall(output)
    step = steps[-1][1] if steps else trial.steps[-1].name
    code = int(codes[-1][:3]) if codes and result.exit_code in (RED, NOT_PREPARED) else result.exit_code
    kept = output.strip() if len(output) <= MAX_OUTPUT else "…\n" + output[-MAX_OUTPUT:].strip()
    return TrialRun(
        trial=trial.name,
        step=step[:200],
        exit_code=code,
        output=kept,
        seconds=result.seconds,
        is_green=result.exit_code == GREEN,
    )


def unlike(trial: Trial, run: TrialRun, exit_code: int | None) -> str | None:
    """Why a run that is not green shows something else than what failed at the forge; None if it shows the same."""
    if exit_code == NOT_PREPARED:
        return f"the step {run.step!r}, which passed at the forge, ends with exit code {run.exit_code} here"
    if exit_code != RED:
        return f"it could not be run here (exit code {exit_code})"
    if trial.exit_code is not None and run.exit_code is not None and trial.exit_code != run.exit_code:
        return f"it ends with exit code {run.exit_code} here, and with {trial.exit_code} at the forge"
    if trial.exit_code is None and run.exit_code in (126, 127):
        return "a program that it needs is not in the sandbox"
    return None


def shortened(run: TrialRun, most: int) -> TrialRun:
    return run if len(run.output) <= most else replace(run, output="…\n" + run.output[-most:])
