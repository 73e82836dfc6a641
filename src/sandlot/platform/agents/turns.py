"""Turns: one start of an agent in a sandbox, as files to write there and the shell lines that start, watch and interrupt it."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sandlot.data_files import data_files
from sandlot.platform.agents.descriptions import MODEL, PROMPT, AgentDescription, AgentTask
from sandlot.platform.core.errors import ConfigurationError, InvalidRequest
from sandlot.platform.core.tasks import TokenUsage

HOME = "/home/user"
SESSION, COMMAND, CARRIED, USAGE = "{session}", "{command}", "{carried}", "{usage}"
NOTHING = TokenUsage()
HEADER = "sandlot.turn"  # the type of the first line of every output: what the reader of the stream has to know
TOTALS = "sandlot.usage"  # the type of the last line, if the agent wrote what it used into a file
NOT_THERE = 126  # the exit code of a turn whose directory is missing
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_TASK = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one start of an agent is about. `number` counts from 1 in each attempt."""

    task: str
    attempt: int
    number: int
    prompt: str
    directory: str
    resume: str | None = None  # the agent's own session name, from an earlier turn
    model: str | None = None
    priced_as: str | None = None  # the model's name in price lists, where the agent is not told it
    command: str | None = None  # of the agent "command"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)  # below the home directory: a model's endpoint
    home: str = HOME
    spent: TokenUsage = NOTHING  # of earlier turns in the same agent session: some agents report all of it again


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFiles:
    """Where a turn's files are in the sandbox."""

    folder: str
    script: str
    prompt: str
    output: str  # standard output as it came
    errors: str
    exit_code: str
    pid: str
    wake: str  # a pipe: whoever waits for the end reads from it


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScript:
    """Write the files, then run the line. Both may be repeated: a turn that was started does not start again."""

    files: Mapping[str, bytes] = field(repr=False)
    start: str


def turn_files(turn: Turn) -> TurnFiles:
    if not _TASK.fullmatch(turn.task):
        raise InvalidRequest(f"{turn.task!r} is not the id of a task")
    folder = f"{turn.home}/.sandlot/turns/{turn.task}/{turn.attempt}/{turn.number}"
    names = ("script", "prompt", "output", "errors", "exit_code", "pid", "wake")
    return TurnFiles(folder=folder, **{name: f"{folder}/{name}" for name in names})


def turn_script(agent: AgentDescription, turn: Turn) -> TurnScript:
    """Raises `ConfigurationError` if the agent cannot work on tasks, `InvalidRequest` if the turn cannot be started so."""
    how, files = _how(agent), turn_files(turn)
    values = {
        "folder": files.folder,
        "directory": turn.directory,
        "header": json.dumps(_header(how, turn)),
        "line": _command_line(agent, how, turn, files),
        "signals": " ".join(how.interrupt),
        "ticks": str(how.grace_s * 5),
        "prompt": _READ_PROMPT if PROMPT in _arguments(how, turn) else ":",
    }
    plain = {"line", "signals", "ticks", "prompt"}
    script = _SCRIPT.replace("@totals@", TOTALS)
    for name, value in values.items():
        script = script.replace(f"@{name}@", value if name in plain else shlex.quote(value))
    told = {**agent.environment, **how.environment, **turn.environment}
    written = {
        files.script: script.encode(),
        files.prompt: turn.prompt.encode(errors="replace"),
        f"{files.folder}/environment": _exports(told),
        **{f"{turn.home}/{path}": text.encode() for path, text in turn.files.items()},
    }
    if how.carries is not None:
        written[_carried(files)] = (data_files("guest") / how.carries).read_bytes()
    return TurnScript(files=written, start=f"sh {shlex.quote(files.script)} start")


def interrupt_line(agent: AgentDescription, turn: Turn) -> str:
    """Ends the turn: first kindly. When the line returns, the turn has ended and its exit code is written."""
    _how(agent)
    return f"sh {shlex.quote(turn_files(turn).script)} interrupt"


def interrupt_seconds(agent: AgentDescription) -> int:
    """How long that may take."""
    how = _how(agent)
    return how.grace_s * len(how.interrupt) + 10


def state_line(turn: Turn) -> str:
    """Prints `absent` (never started), `running`, `ended N`, or `gone`: it was started, and its machine was lost."""
    script = shlex.quote(turn_files(turn).script)
    return f"if [ -e {script} ]; then sh {script} state; else echo absent; fi"


def chosen_session(turn: Turn) -> str:
    """The name of a new conversation, for agents that are told one."""
    return turn.resume or str(uuid.uuid5(uuid.NAMESPACE_URL, f"sandlot:{turn.task}/{turn.attempt}/{turn.number}"))


def _how(agent: AgentDescription) -> AgentTask:
    if agent.task is None:
        raise ConfigurationError(f"the agent {agent.id!r} does not work on tasks: its description has no [task] part")
    return agent.task


def _header(how: AgentTask, turn: Turn) -> dict[str, object]:
    known = {
        "session": chosen_session(turn) if SESSION in how.start else turn.resume,
        "directory": turn.directory,
        "model": turn.model or turn.priced_as,
        "command": turn.command,
        "spent": asdict(turn.spent) if turn.resume is not None else None,
    }
    return {"type": HEADER, **{name: value for name, value in known.items() if value}}


def _arguments(how: AgentTask, turn: Turn) -> tuple[str, ...]:
    return how.resume if turn.resume is not None and how.resume is not None else how.start


def _command_line(agent: AgentDescription, how: AgentTask, turn: Turn, files: TurnFiles) -> str:
    arguments = _arguments(how, turn)
    if COMMAND in arguments and not turn.command:
        raise InvalidRequest(f"the agent {agent.id!r} needs a command")
    parts = {
        PROMPT: ('"$prompt"',),
        MODEL: tuple(map(shlex.quote, agent.model_flags(turn.model))),
        SESSION: (shlex.quote(chosen_session(turn)),),
        COMMAND: (shlex.quote(turn.command or ""),),
        CARRIED: (shlex.quote(_carried(files)),),
        USAGE: ('"$folder/usage"',),
    }
    words = [word for argument in arguments for word in parts.get(argument, (shlex.quote(argument),))]
    program = "run_python" if how.carries is not None else shlex.quote(agent.program)
    taken = "/dev/null" if PROMPT in arguments else shlex.quote(files.prompt)
    errors = "2>&1" if how.output == "text" else '2>>"$folder/errors"'
    return f'{" ".join([program, *words])} <{taken} >>"$folder/output" {errors}'


def _carried(files: TurnFiles) -> str:
    return f"{files.folder}/agent.py"


def _exports(variables: Mapping[str, str]) -> bytes:
    lines = []
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise InvalidRequest(f"{name!r} cannot be a variable of an agent, or its value has a zero byte")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    return "".join(lines).encode(errors="replace")


_READ_PROMPT = """prompt=$(cat "$folder/prompt"; echo x)
  prompt=${prompt%x}"""
# Everything is in functions, so that the shell has read all of it before anything happens: the file may be written again meanwhile.
_SCRIPT = r"""#!/bin/sh
# One turn of an agent, made by Sandlot: start, state or interrupt.
folder=@folder@

start() {
  if [ ! -e "$folder/started" ]; then
    [ -p "$folder/wake" ] || mkfifo "$folder/wake" 2>/dev/null
    # A shell without job control lets what it puts into the background ignore SIGINT: so setsid forks, if it can.
    if ! setsid --fork sh "$folder/script" run </dev/null >/dev/null 2>&1; then
      setsid sh "$folder/script" run </dev/null >/dev/null 2>&1 &
    fi
  fi
  begun || { echo "the turn does not start: is setsid missing?" >&2; exit 1; }
}

# Whoever runs the turn has read its variables when its number is there; what was written of them since is of no use.
begun() {
  tries=0
  while [ ! -s "$folder/pid" ] && [ $tries -lt 20 ]; do tries=$((tries + 1)); sleep 0.01; done
  while [ ! -s "$folder/pid" ] && [ $tries -lt 120 ]; do tries=$((tries + 1)); sleep 0.1; done
  [ -s "$folder/pid" ] && forget
}

forget() {
  [ ! -e "$folder/environment" ] || rm -f "$folder/environment"
}

run() {
  mkdir "$folder/started" 2>/dev/null || { begun; exit 0; }
  printf '%s\n' @header@ >"$folder/output"
  : >"$folder/errors"
  [ ! -e "$folder/environment" ] || . "$folder/environment"
  forget
  trap : INT TERM
  put pid $$
  export SANDLOT_TURN="$folder" SANDLOT_PROMPT_FILE="$folder/prompt"
  if cd @directory@ 2>>"$folder/errors"; then
    agent
    code=$?
    [ ! -s "$folder/usage" ] || printf '{"type":"@totals@","usage":%s}\n' "$(head -c 100000 "$folder/usage" | tr -d '\n\r')" >>"$folder/output"
    put exit_code $code
  else
    put exit_code 126
  fi
  [ ! -p "$folder/wake" ] || printf . 1<>"$folder/wake"
}

agent() {
  @prompt@
  @line@
}

run_python() {
  if command -v python3 >/dev/null 2>&1; then python3 "$@"; return; fi
  for loader in /.sandlot/lib/ld-*; do
    if [ -x "$loader" ]; then
      "$loader" --inhibit-cache --library-path /.sandlot/lib /.sandlot/bin/python3 -S -B -X utf8 "$@"
      return
    fi
  done
  echo "there is no python3 in this sandbox" >&2
  return 127
}

# One write: a file with something in it is complete.
put() {
  printf '%s\n' "$2" >"$folder/$1"
}

# The process that runs the turn; a number that was given to another process meanwhile is not it.
leader() {
  pid=$(cat "$folder/pid" 2>/dev/null)
  case $pid in '' | *[!0-9]* | 0 | 1) return 1 ;; esac
  [ ! -e /proc/self/cmdline ] || grep -qsF "$folder/script" "/proc/$pid/cmdline"
}

state() {
  if [ -s "$folder/exit_code" ]; then echo "ended $(cat "$folder/exit_code")"
  elif [ ! -e "$folder/started" ]; then echo absent
  elif leader && kill -s 0 "$pid" 2>/dev/null; then echo running
  elif [ -s "$folder/exit_code" ]; then echo "ended $(cat "$folder/exit_code")"
  elif [ ! -s "$folder/pid" ] && sleep 1 && [ -s "$folder/pid" ]; then state
  else echo gone
  fi
}

interrupt() {
  # A turn that was not started yet never will be.
  mkdir "$folder/started" 2>/dev/null && { forget; put pid 0; put exit_code 130; }
  [ ! -s "$folder/exit_code" ] || return 0
  if leader; then
    for signal in @signals@; do
      kill -s "$signal" -- "-$pid" 2>/dev/null
      tries=0
      while [ $tries -lt @ticks@ ]; do
        [ ! -s "$folder/exit_code" ] || break 2
        kill -s 0 -- "-$pid" 2>/dev/null || break 2
        tries=$((tries + 1))
        sleep 0.2
      done
    done
  fi
  # Programs that left the group are found by what they were told.
  for known in $(grep -lszxF "SANDLOT_TURN=$folder" /proc/[0-9]*/environ 2>/dev/null); do
    known=${known#/proc/}
    known=${known%/environ}
    [ "$known" -le 1 ] || [ "$known" = $$ ] || kill -s KILL "$known" 2>/dev/null
  done
  [ -s "$folder/exit_code" ] || put exit_code 137
}

case ${1-} in
  start | run | state | interrupt) "$1"; exit ;;
  *) echo "start, state or interrupt" >&2; exit 2 ;;
esac
"""
