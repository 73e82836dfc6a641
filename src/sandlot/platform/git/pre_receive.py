"""The hook that decides whether a push is taken. Run by git in a repository of ours, with the policy in a file beside it.

Standard library only. New objects are in quarantine while it runs: what it refuses leaves nothing behind. What it
prints is shown to whoever pushes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ZERO = "0" * 40
POLICY = "sandlot-policy.json"
MAX_COMMANDS = 32


def main() -> int:
    policy = json.loads(Path(os.environ.get("GIT_DIR", "."), POLICY).read_text())
    commands = [line.split(" ", 2) for line in sys.stdin.read(1 << 20).splitlines() if line]
    if len(commands) > MAX_COMMANDS:
        return refuse(f"a push may change at most {MAX_COMMANDS} refs.")
    for old, new, ref in commands:
        problem = problem_of(policy, old, new, ref)
        if problem:
            return refuse(problem)
    return 0


def problem_of(policy: dict[str, object], old: str, new: str, ref: str) -> str | None:
    allowed = list(policy["refs"])  # type: ignore[call-overload]
    if ref not in allowed:
        names = ", ".join(name.removeprefix("refs/heads/") for name in allowed)
        return f"this task may push only to {names}, not to {printable(ref)}. Try: git push origin HEAD:{allowed[0]}"
    if new == ZERO:
        return f"{printable(ref)} may not be deleted. Push a commit that undoes the change instead."
    if git("cat-file", "-t", new).strip() != "commit":
        return f"{printable(ref)} must be a commit."
    if ref in list(policy.get("rewritable", [])):  # type: ignore[call-overload]
        return protected_change(policy, new)
    is_rewrite = old != ZERO and subprocess.run(["git", "merge-base", "--is-ancestor", old, new]).returncode != 0
    if is_rewrite and not policy["allow_force"]:
        return (
            f"{printable(ref)} has commits that this push would drop, and rewriting history is not allowed here. "
            "Run git pull --rebase, then push again without --force."
        )
    return protected_change(policy, new)


def protected_change(policy: dict[str, object], new: str) -> str | None:
    protect = list(policy["protect"])  # type: ignore[call-overload]
    base = str(policy["base_sha"])
    if not protect or not base:
        return None
    fork = subprocess.run(["git", "merge-base", base, new], capture_output=True, text=True)
    since = fork.stdout.strip() or git("hash-object", "-t", "tree", "/dev/null").strip()
    # Every commit counts, not only the sum of them: what is merged later may be any of these.
    found = git("diff", "--name-only", "-z", "--no-renames", since, new, "--", *protect).split("\0")
    found += git("log", "--format=", "--name-only", "-z", "--no-renames", "-m", f"{base}..{new}", "--", *protect).split(
        "\0"
    )
    changed = sorted({name.strip() for name in found if name.strip()})
    if not changed:
        return None
    return (
        f"this task may not change files below {', '.join(protect)}, and this push changes {printable(changed[0])}. "
        "Undo that in every commit, for example with git rebase -i, and push again."
    )


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, check=True).stdout.decode(errors="replace")


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def refuse(problem: str) -> int:
    print(f"sandlot: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
