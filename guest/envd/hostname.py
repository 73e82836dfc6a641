"""The machine's host name: one that goes on from another's memory, or began with it, still has that one's until told its own."""

from __future__ import annotations

import os

from envd import logs

_LIMIT = 1 << 20


def take(name: str, etc: str = "/etc") -> None:
    """Be called `name`, in the kernel and in the files that say so.

    Only as the machine's first process: whoever runs this beside others has no machine of its own to name. Where the kernel
    refuses, the machine got its name when it started.
    """
    old = os.uname().nodename
    if os.getpid() != 1 or not name or name == old:
        return
    try:
        from _socket import sethostname

        sethostname(name)
    except OSError:
        return
    for file in ("hosts", "hostname"):
        try:
            _rename(f"{etc}/{file}", old, name)
        except (OSError, ValueError) as error:
            logs.report(f"the host name in {etc}/{file} could not be changed", error)


def _rename(path: str, old: str, new: str) -> None:
    """Put the new name where the old one stands as a word; the rest of the file may be somebody's own."""
    with open(path, "r+", encoding="utf-8") as file:
        lines = file.read(_LIMIT).splitlines(keepends=True)
        if file.read(1):
            return
        renamed = "".join(_line(line, old, new) for line in lines)
        file.seek(0)
        file.write(renamed)
        file.truncate()


def _line(line: str, old: str, new: str) -> str:
    if old not in line.split():
        return line
    end = line[len(line.rstrip()) :]
    return "\t".join(new if word == old else word for word in line.split()) + end
