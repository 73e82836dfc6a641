"""The hook that decides whether a push is taken. Run by git in a repository of ours, with the policy in a file beside it.

Standard library only, and little of it: every push waits for its start. New objects are in quarantine while it runs: what it refuses leaves nothing behind. What it
prints is shown to whoever pushes.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., tuple[int, str]]

ZERO = "0" * 40
POLICY = "sandlot-policy.json"
MAX_COMMANDS = 32


def main() -> int:
    with open(f"{os.environ.get('GIT_DIR', '.')}/{POLICY}") as file:  # noqa: PTH123  # pathlib takes long to load
        policy = json.load(file)
    commands = [line.split(" ", 2) for line in sys.stdin.read(1 << 20).splitlines() if line]
    if len(commands) > MAX_COMMANDS:
        return refuse(f"a push may change at most {MAX_COMMANDS} refs.")
    for old, new, ref in commands:
        problem = problem_of(policy, old, new, ref)
        if problem:
            return refuse(problem)
    return 0


def problem_of(policy: dict[str, object], old: str, new: str, ref: str, ask: Ask | None = None) -> str | None:
    """Why it is not taken. `ask` runs git. Raises `OSError` if git cannot say."""
    allowed = list(policy["refs"])  # type: ignore[call-overload]
    if ref not in allowed:
        names = ", ".join(name.removeprefix("refs/heads/") for name in allowed)
        return f"this task may push only to {names}, not to {printable(ref)}. Try: git push origin HEAD:{allowed[0]}"
    if new == ZERO:
        return f"{printable(ref)} may not be deleted. Push a commit that undoes the change instead."
    if git("cat-file", "-t", new, ask=ask).strip() != "commit":
        return f"{printable(ref)} must be a commit."
    if ref in list(policy.get("rewritable", [])):  # type: ignore[call-overload]
        return protected_change(policy, new, ask)
    is_rewrite = old != ZERO and (ask or run)("merge-base", "--is-ancestor", old, new)[0] != 0
    if is_rewrite and not policy["allow_force"]:
        return (
            f"{printable(ref)} has commits that this push would drop, and rewriting history is not allowed here. "
            "Run git pull --rebase, then push again without --force."
        )
    return protected_change(policy, new, ask)


def protected_change(policy: dict[str, object], new: str, ask: Ask | None) -> str | None:
    protect = list(policy["protect"])  # type: ignore[call-overload]
    base = str(policy["base_sha"])
    if not protect or not base:
        return None
    # Every commit counts, not only the sum of them: what is merged later may be any of these.
    span = ("-m", "--full-history", f"{base}..{new}", "--", *protect)
    found = git("log", "--format=", "--name-only", "-z", "--no-renames", *span, ask=ask).split("\0")
    changed = sorted({name.strip() for name in found if name.strip()})
    if not changed:
        return None
    return (
        f"this task may not change files below {', '.join(protect)}, and this push changes {printable(changed[0])}. "
        "Undo that in every commit, for example with git rebase -i, and push again."
    )


def git(*arguments: str, ask: Ask | None = None) -> str:
    status, output = (ask or run)(*arguments)
    if status != 0:
        raise OSError(f"git {arguments[0]} ended with status {status}")
    return output


def run(*arguments: str) -> tuple[int, str]:
    """The status of a command of git, and what it printed."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)]
    pid = os.posix_spawnp("git", ["git", *arguments], os.environ, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        printed = output.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), printed.decode(errors="replace")


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def refuse(problem: str) -> int:
    print(f"sandlot: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
