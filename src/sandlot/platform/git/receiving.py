"""A push that the platform carries itself: taken with the checks of `git receive-pack` and of its hook, without their processes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sandlot.platform.core.errors import Unavailable
from sandlot.platform.git import pre_receive
from sandlot.platform.git.commands import ZERO, Git, GitFailed
from sandlot.platform.git.submissions import ref_commit

TAKE_S = 120.0
_SHA = re.compile(r"[0-9a-f]{40}")


async def receive(git: Git, at: Path, ref: str, new: str, pack: bytes) -> str | None:
    """Let `ref` be at `new`, whose objects are in the pack. Both are a guest's word.

    Returns why it was not taken, as a sentence for whoever made the commits. Raises `Unavailable` if `ref` moved meanwhile.
    """
    if not _SHA.fullmatch(new):
        return "what was handed in is no commit."
    policy = json.loads((at / pre_receive.POLICY).read_text())
    if len(pack) > int(policy["max_bytes"]):
        return f"a push may have at most {int(policy['max_bytes']) >> 20} MiB; leave large files out of it."
    old = await ref_commit(git, at, ref)
    quarantine = Path(tempfile.mkdtemp(prefix="incoming-", dir=at / "objects"))
    try:
        # Nothing of it is in the repository before it was looked at.
        apart = {"GIT_OBJECT_DIRECTORY": str(quarantine), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(at / "objects")}
        env = {**git.environment(None, **apart), "GIT_DIR": str(at)}
        unpack = ("-c", "fsck.badTimezone=ignore", "unpack-objects", "-q", "--strict")
        taken = await git.run(*unpack, input=pack, env=env, check=False, timeout_s=TAKE_S)
        if taken.status != 0:
            return f"git does not take the changes: {taken.stderr.strip()[-500:] or 'their objects are broken'}"
        try:
            problem = await asyncio.to_thread(pre_receive.problem_of, policy, old or ZERO, new, ref, _asking(git, env))
        except OSError:
            problem = "what was handed in is no commit, or parts of it are missing."
        if problem is not None:
            return problem
        await asyncio.to_thread(_admit, quarantine, at / "objects")
    finally:
        await asyncio.to_thread(shutil.rmtree, quarantine, True)
    try:
        await git.run("update-ref", ref, new, old or ZERO, at=at, doing="take what was handed in")
    except GitFailed as error:
        raise Unavailable(str(error)) from error
    return None


def _asking(git: Git, env: Mapping[str, str]) -> Callable[..., tuple[int, str]]:
    """Runs git from another thread."""
    loop = asyncio.get_running_loop()

    def ask(*arguments: str) -> tuple[int, str]:
        ran = asyncio.run_coroutine_threadsafe(git.run(*arguments, env=env, check=False), loop).result(TAKE_S)
        return ran.status, ran.text

    return ask


def _admit(quarantine: Path, objects: Path) -> None:
    """Files that are named by their content: one that is there already is the same."""
    for folder in quarantine.iterdir():
        if folder.is_dir() and len(folder.name) == 2:
            (objects / folder.name).mkdir(exist_ok=True)
            for file in folder.iterdir():
                file.replace(objects / folder.name / file.name)
