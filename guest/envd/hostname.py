"""The machine's host name: one that was started ahead, or began with another's state, has another name until told its own."""

from __future__ import annotations

import os

from envd import logs

_LIMIT = 1 << 20


def take(name: str, etc: str = "/etc") -> None:
    """Be called `name`, in the kernel and in the files that say so.

    Only as the machine's first process: whoever runs this beside others has no machine of its own to name. Where the kernel
    refuses, the host sets the name right after; the files are changed here in any case.
    """
    if os.getpid() != 1 or not name:
        return
    old = {os.uname().nodename, _written(f"{etc}/hostname")} - {name, ""}
    if not old:
        return
    try:
        from _socket import sethostname

        sethostname(name)
    except OSError:
        pass
    for file in ("hosts", "hostname"):
        for each in old:
            try:
                _rename(f"{etc}/{file}", each, name)
            except (OSError, ValueError) as error:
                logs.report(f"the host name in {etc}/{file} could not be changed", error)


def _written(path: str) -> str:
    """The name in the file, if it is one that the engine gave: an image's own is left alone."""
    try:
        with open(path, encoding="utf-8") as file:
            word = file.read(256).strip()
    except (OSError, ValueError):
        return ""
    # Sandboxes are called "i" and machines "m", and 20 small letters and digits. (No `re`: it costs start-up time.)
    is_given = len(word) == 21 and word[0] in "im" and word.isascii() and word.isalnum() and word == word.lower()
    return word if is_given else ""


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
