"""The languages cells can be written in: which program is their kernel, and how each says what all must be able to say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

KERNELS = Path(__file__).parent / "kernels"
DEFAULT = "python"
ALIASES = {"py": "python", "js": "javascript", "ts": "typescript", "sh": "bash"}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Variables = Mapping[str, str | None]  # None: is to be unset
Interrupt = Literal["signal", "message", "never"]  # never: the only way to end a cell is to end its kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    name: str
    argv: tuple[str, ...]  # of the kernel; `{connection_file}` is put in
    assign: Callable[[Variables], str]  # code that sets and unsets environment variables, and shows nothing
    inherits: bool = True  # whether these are the variables of its process
    transport: str = "ipc"
    interrupt: Interrupt = "signal"
    setup: str = ""  # code that runs in each new kernel, unseen
    # Code that runs, unseen, when a kernel finds itself in another sandbox than before: those that began with the same saved
    # state must not draw the same random numbers.
    awaken: str = ""
    # Code that shows {token} through each way that output takes. Needed where a kernel may report that a cell is done
    # before everything the cell printed was sent.
    flush: str = ""
    flush_marks: int = 0
    explain: tuple[str, ...] = ()  # a program that reads code and says what is wrong with it, where the kernel does not
    # Name and value of an error, from the kernel's name for it and the traceback, where the kernel names all errors alike.
    read_error: Callable[[str, str], tuple[str, str]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def normalize(name: str | None) -> str:
    given = (name or DEFAULT).strip().lower()
    return ALIASES.get(given, given)


def available(python: str) -> dict[str, Language]:
    """The languages whose kernels are installed, by name. `python` is the interpreter that cells run in."""
    found = {}
    for language in (_python(python), _bash(python), *_deno(), _r(), _java()):
        if language is not None:
            found[language.name] = language
    return found


def _python(python: str) -> Language:
    return Language(
        name="python",
        # -P: what lies beside the script is not importable from cells.
        argv=(python, "-P", str(KERNELS / "python_kernel.py"), "-f", "{connection_file}"),
        assign=_assign_python,
        awaken="exec('import random; random.seed()', {})",
    )


def _assign_python(variables: Variables) -> str:
    body = (
        "import os\n"
        f"os.environ.update({_given(variables)!r})\n"
        f"for name in {_unset(variables)!r}: os.environ.pop(name, None)\n"
    )
    return f"exec({body!r}, {{}})"


def _bash(python: str) -> Language:
    return Language(
        name="bash",
        argv=(python, "-P", str(KERNELS / "bash_start.py"), "-f", "{connection_file}"),
        assign=_assign_bash,
        environment={"TERM": "dumb"},
    )


def _assign_bash(variables: Variables) -> str:
    sets = [f"export {name}={shlex.quote(value)}" for name, value in _given(variables).items() if _is_name(name)]
    return "\n".join([*sets, *(f"unset {name}" for name in _unset(variables) if _is_name(name))]) or ":"


def _deno() -> list[Language]:
    deno = shutil.which("deno", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if deno is None:
        return []
    return [
        Language(
            name=name,
            argv=(deno, "jupyter", "--kernel", "--conn", "{connection_file}"),
            assign=_assign_javascript,
            transport="tcp",
            interrupt="never",
            setup=(KERNELS / "javascript_setup.js").read_text(),
            awaken='globalThis[Symbol.for("interpreter")].reseed();undefined',
            flush='await globalThis[Symbol.for("interpreter")].flush({token});',
            flush_marks=2,
            explain=(deno, "fmt", "--ext", extension, "-"),
            environment={"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
        )
        for name, extension in (("javascript", "js"), ("typescript", "ts"))
    ]


def _assign_javascript(variables: Variables) -> str:
    deletes = "".join(f"delete process.env[{json.dumps(name)}];" for name in _unset(variables))
    return f"Object.assign(process.env, {json.dumps(_given(variables))});{deletes}undefined"


def _r() -> Language | None:
    program = shutil.which("R")
    if program is None or not any(Path(root, "IRkernel").is_dir() for root in R_LIBRARIES):
        return None
    setup = "options(jupyter.rich_display = TRUE)"
    argv = (program, "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}")
    return Language(name="r", argv=argv, assign=_assign_r, transport="tcp", setup=setup)


R_LIBRARIES = ("/usr/lib/R/site-library", "/usr/local/lib/R/site-library", "/usr/lib/R/library")


def _assign_r(variables: Variables) -> str:
    # R reads the escapes of JSON strings, except that of a slash, which json.dumps does not write.
    sets = [f"`{name}` = {json.dumps(value)}" for name, value in _given(variables).items() if _is_name(name)]
    names = ", ".join(json.dumps(name) for name in _unset(variables) if _is_name(name))
    parts = [f"Sys.setenv({', '.join(sets)})" if sets else "", f"Sys.unsetenv(c({names}))" if names else ""]
    return "invisible({" + "; ".join(part for part in parts if part) + "})"


def _java() -> Language | None:
    jar = Path(sys.prefix, "share", "jupyter", "kernels", "java", "jjava.jar")
    program = shutil.which("java")
    if program is None or not jar.is_file() or not (KERNELS / "java").is_dir():
        return None
    options = ("-XX:+UseSerialGC", "--add-opens", "jdk.jshell/jdk.jshell=ALL-UNNAMED")
    return Language(
        name="java",
        argv=(program, *options, "-cp", f"{jar}:{KERNELS / 'java'}", "InterpreterJava", "{connection_file}"),
        assign=_assign_java,
        inherits=False,
        transport="tcp",
        interrupt="message",
        read_error=_read_java_error,
    )


JAVA_EXCEPTION = re.compile(r"(?:[\w$]+\.)+([\w$]+)(?:: (.*))?")


def _read_java_error(name: str, traceback: str) -> tuple[str, str]:
    """Exceptions of cells open the traceback with class and message; the compiler shows code behind bars, and below it why."""
    lines = [line for line in traceback.splitlines() if line]
    if lines and (thrown := JAVA_EXCEPTION.fullmatch(lines[0])):
        return thrown[1], thrown[2] or ""
    return name, next((line for line in lines if not line.startswith("|")), "")


def _assign_java(variables: Variables) -> str:
    sets = [f"System.setProperty({_java_text(k)}, {_java_text(v)});" for k, v in _given(variables).items()]
    return "\n".join([*sets, *(f"System.clearProperty({_java_text(name)});" for name in _unset(variables))])


def _java_text(text: str) -> str:
    """Java reads the escapes of JSON strings. A percent sign after `=` would be taken for a command of the kernel."""
    return json.dumps(text).replace("%", "\\u0025")


def _given(variables: Variables) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value is not None}


def _unset(variables: Variables) -> list[str]:
    return [name for name, value in variables.items() if value is None]


def _is_name(text: str) -> bool:
    return IDENTIFIER.fullmatch(text) is not None
