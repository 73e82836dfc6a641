"""Changes files of an image for a build (users, directories, copies) without running anything of the image.

It is a program of its own: it mounts the layers with an empty one on top, makes that tree its root, gives up what root may
do beyond files, and only then looks at names and archives. Links that a hostile image or archive holds lead nowhere else.
"""

from __future__ import annotations

import bz2  # noqa: F401 - nothing can be imported after the change of root
import contextlib
import ctypes
import gzip
import json
import lzma
import os
import re
import shutil
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

Act = Mapping[str, Any]

CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE, MS_NODEV = 0x4000, 1 << 18, 0x4
PR_SET_NO_NEW_PRIVS = 38
# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID: what a copy of files needs
KEPT_CAPABILITIES = 0b11111
STAGING = ".sandlot-context"
MOST_ENTRIES = 1_000_000
LONGEST_NAME = 4096
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\Z")
_GLOB = re.compile(r"[*?\[{]")
_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The act cannot be done; the text is for whoever wrote the step."""


# -- the root ------------------------------------------------------------------------------------------------------


def enter(job: Mapping[str, Any]) -> None:
    """Make the layers, with the new one on top, this process's root, and give up all but files."""
    mount(job, f",upperdir={job['upper']},workdir={job['work']}")
    confine(os.fsencode(job["root"]), KEPT_CAPABILITIES)


def mount(job: Mapping[str, Any], writable: str = "") -> None:
    """Mount the layers, for this process alone."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")
    os.chdir(job["directory"])  # names instead of paths: the kernel reads at most a page of options
    options = f"lowerdir={':'.join(reversed(job['layers']))}{writable},index=off,metacopy=off,redirect_dir=off"
    root = os.fsencode(job["root"])
    _check(_libc.mount(b"overlay", root, b"overlay", MS_NODEV, options.encode()), "mount the layers")


def join(job: Mapping[str, Any]) -> None:
    """Become a copy of what all layers together show. Nothing in there is followed or run: links are copied as links."""
    mount(job)
    os.execv("/bin/cp", ["cp", "-a", "--reflink=auto", "--", f"{job['root']}/.", job["target"]])


def confine(root: bytes, capabilities: int) -> None:
    """Never leave this root again, and never be more than someone who may change files."""
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    kept = capabilities & 0xFFFFFFFF
    held = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges")
    _check(_libc.capset(header, held), "give up capabilities")


def _check(result: int, doing: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"could not {doing}: {os.strerror(ctypes.get_errno())}")


# -- users ---------------------------------------------------------------------------------------------------------


def accounts(name: str) -> list[list[str]]:
    """The lines of /etc/passwd or /etc/group, in fields."""
    try:
        with open(f"/etc/{name}", encoding="utf-8", errors="surrogateescape") as file:
            return [line.rstrip("\n").split(":") for line in file if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        return []


def user_of(name: str) -> tuple[int, int, str] | None:
    """Ids and home directory."""
    for fields in accounts("passwd"):
        if len(fields) >= 6 and (fields[0] == name or (name.isdigit() and fields[2] == name)):
            return int(fields[2]), int(fields[3]), fields[5] or "/"
    if name == "root" or name == "0":
        return 0, 0, "/root"
    return (int(name), int(name), "/") if name.isdigit() and len(name) < 10 else None


def group_of(name: str) -> int | None:
    for fields in accounts("group"):
        if len(fields) >= 3 and fields[0] == name:
            return int(fields[2])
    return int(name) if name.isdigit() and len(name) < 10 else None


def ensure_user(name: str) -> tuple[int, int, str]:
    """The user, made if there is none: with a home directory, a group of the same name, and no password."""
    found = user_of(name)
    if found is not None:
        return found
    if not _USER.match(name):
        raise Refused(f"failed to create user: invalid user name {name[:80]!r}")
    taken = {
        int(fields[2])
        for table in ("passwd", "group")
        for fields in accounts(table)
        if fields[2:3] and fields[2].isdigit()
    }
    uid = next(number for number in range(1000, 60000) if number not in taken)
    gid = group_of(name)
    if gid is None:
        gid = uid
        append("/etc/group", f"{name}:x:{gid}:", 0o644)
    home = f"/home/{name}"
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    append("/etc/passwd", f"{name}:x:{uid}:{gid}::{home}:{shell}", 0o644)
    if os.path.exists("/etc/shadow"):
        append("/etc/shadow", f"{name}:*:19000:0:99999:7:::", 0o640)
    make_home(home, uid, gid)
    return uid, gid, home


def append(path: str, line: str, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = not os.path.exists(path)
    with open(path, "a+", encoding="utf-8", errors="surrogateescape") as file:
        file.seek(0)
        text = file.read()
        file.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
    if new:
        os.chmod(path, mode)


def make_home(home: str, uid: int, gid: int) -> None:
    if os.path.isdir(home):
        return
    if os.path.isdir("/etc/skel"):
        os.makedirs(os.path.dirname(home), exist_ok=True)
        shutil.copytree("/etc/skel", home, symlinks=True)
    else:
        os.makedirs(home)
    for directory, names, files in os.walk(home):
        for each in (directory, *(os.path.join(directory, name) for name in (*names, *files))):
            os.chown(each, uid, gid, follow_symlinks=False)
    os.chmod(home, 0o755)


# -- the acts ------------------------------------------------------------------------------------------------------


def provision(act: Act) -> str:
    """What every sandbox expects of an image: a user who may use sudo, a directory for temporary files."""
    if not accounts("passwd"):
        append("/etc/passwd", "root:x:0:0:root:/root:/bin/sh", 0o644)
        append("/etc/group", "root:x:0:", 0o644)
    uid, gid, home = ensure_user(act["user"])
    make_home(home, uid, gid)
    if os.path.isdir("/etc/sudoers.d"):
        path = f"/etc/sudoers.d/{act['user']}"
        if not os.path.lexists(path):
            append(path, f"{act['user']} ALL=(ALL:ALL) NOPASSWD: ALL", 0o440)
    for path, mode in (("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/root", 0o700)):
        if not os.path.lexists(path):
            os.makedirs(path)
            os.chmod(path, mode)
    return home


def look(act: Act) -> str:
    """The home directory of a user who is there."""
    found = user_of(act["user"])
    return found[2] if found else "/"


def user(act: Act) -> str:
    return ensure_user(act["user"])[2]


def workdir(act: Act) -> str | None:
    """The directory, made as the current user's if it is missing."""
    path = act["path"]
    owner = user_of(act["user"]) or (0, 0, "/")
    try:
        make_directories(path, owner[:2])
    except (FileExistsError, NotADirectoryError):
        raise Refused(
            f"failed to create workdir: {path!r} is, or leads through, something that is no directory"
        ) from None
    return None


def make_directories(path: str, owner: tuple[int, int]) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent != path:
        make_directories(parent, owner)
    os.mkdir(path)
    os.chown(path, *owner)


def copy(act: Act) -> str | None:
    """Unpack an archive beside the tree, then move what the step names to its target, as Docker's COPY does."""
    staging = f"/{STAGING}"
    os.mkdir(staging, 0o700)
    try:
        with open(act["fd"], "rb", closefd=True) as file:
            unpack(file, staging, act["limit"])
        parts = source_of(act["source"])
        source = below(staging, parts) if parts else staging
        if not os.path.lexists(source):
            raise Refused(f"COPY: {act['source']!r} is not among the uploaded files")
        owner = owner_of(act["owner"])
        give(source, owner, int(act["mode"], 8) if act["mode"] else None)
        target = os.path.normpath(os.path.join(act["workdir"], act["target"]))
        into = act["target"].endswith("/") or act["target"] in (".", "..") or act["target"].endswith(("/.", "/.."))
        try:
            put(source, target, into=into, owner=owner)
        except (FileExistsError, NotADirectoryError):
            raise Refused(f"COPY: {target!r} leads through something that is no directory") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return None


def source_of(pattern: str) -> list[str]:
    """The part of a source before its first wildcard: the caller has resolved those."""
    kept: list[str] = []
    for part in pattern.split("/"):
        if _GLOB.search(part):
            break
        if part == ".." or (part == "" and not kept and pattern.startswith("/")):
            raise Refused(f"COPY: {pattern[:200]!r} is outside the build context")
        if part not in ("", "."):
            kept.append(part)
    return kept


def owner_of(text: str) -> tuple[int, int]:
    name, _, group = text.partition(":")
    found = user_of(name)
    if found is None:
        raise Refused(f"COPY: there is no user {name[:80]!r} in the image")
    if not group:
        return found[0], found[1]
    gid = found[1] if group == name else group_of(group)
    if gid is None:
        raise Refused(f"COPY: there is no group {group[:80]!r} in the image")
    return found[0], gid


def unpack(file: Any, staging: str, limit: int) -> None:
    """An archive, plain or compressed, into an empty directory. What would leave it, or is no file, is refused."""
    left = limit
    try:
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for number, entry in enumerate(archive):
                if number >= MOST_ENTRIES:
                    raise Refused(f"COPY: the archive has more than {MOST_ENTRIES} entries")
                archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
                left -= entry.size  # also of what is passed over: it has to be read
                if len(entry.name) > LONGEST_NAME:
                    raise Refused(f"COPY: the archive has a name that is too long: {entry.name[:200]!r}")
                if left < 0:
                    raise Refused(f"COPY: the files are larger than the {limit >> 20} MiB a build may write: disk full")
                unpack_entry(archive, entry, staging)
    except MemoryError:
        raise Refused("COPY: the uploaded archive takes more memory than unpacking it may") from None
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno == 28:
            raise Refused("COPY: the disk of the build is full") from error
        raise Refused(f"COPY: the uploaded archive cannot be read: {error}") from error


def unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, staging: str) -> None:
    parts = inside(entry.name)
    if not parts:
        return
    path = below(staging, parts)
    mode = entry.mode & 0o7777
    if entry.isdir():
        if not os.path.isdir(path) or os.path.islink(path):
            clear(path)
            os.mkdir(path)
        os.chmod(path, mode | 0o700)
    elif entry.isreg():
        clear(path)
        source = archive.extractfile(entry)
        assert source is not None
        with open(path, "xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        os.chmod(path, mode)
        os.utime(path, (entry.mtime, entry.mtime))
    elif entry.issym():
        clear(path)
        os.symlink(entry.linkname, path)
    elif entry.islnk():
        clear(path)
        other = below(staging, inside(entry.linkname))
        if not stat.S_ISREG(os.lstat(other).st_mode):
            raise Refused(f"COPY: {entry.name[:200]!r} in the archive is a link to something that is no file")
        os.link(other, path, follow_symlinks=False)
    else:
        raise Refused(f"COPY: {entry.name[:200]!r} in the archive is neither file, directory nor link")


def inside(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise Refused(f"COPY: {name[:200]!r} in the archive is outside the build context")
    return parts


def below(staging: str, parts: list[str]) -> str:
    """The path of an entry; its parents are made, and none of them may be a link."""
    path = staging
    for part in parts[:-1]:
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise Refused(f"COPY: {'/'.join(parts)[:200]!r} in the archive leads through a symbolic link")
        if not os.path.isdir(path):
            os.mkdir(path)
    return os.path.join(path, parts[-1])


def clear(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def give(top: str, owner: tuple[int, int], mode: int | None) -> None:
    """Owner and mode of everything that is copied."""

    def one(path: str) -> None:
        os.chown(path, *owner, follow_symlinks=False)
        if mode is not None and not os.path.islink(path):
            os.chmod(path, mode)

    if os.path.isdir(top) and not os.path.islink(top):
        for directory, names, files in os.walk(top):
            for name in (*names, *files):
                one(os.path.join(directory, name))
    one(top)


def put(source: str, target: str, *, into: bool, owner: tuple[int, int]) -> None:
    if os.path.isdir(source) and not os.path.islink(source):
        make_directories(target, owner)
        merge(source, target)
        return
    if into or os.path.isdir(target):
        make_directories(target, owner)
        target = os.path.join(target, os.path.basename(source))
    else:
        make_directories(os.path.dirname(target), (0, 0))
    replace(source, target)


def merge(source: str, target: str) -> None:
    """The content of a directory into another. Directories that are there, also behind links, keep what they are."""
    with os.scandir(source) as entries:
        for entry in list(entries):
            there = os.path.join(target, entry.name)
            if not entry.is_dir(follow_symlinks=False):
                replace(entry.path, there)
                continue
            if not os.path.isdir(there):
                clear(there)
                os.mkdir(there)
                shutil.copystat(entry.path, there, follow_symlinks=False)
                facts = entry.stat(follow_symlinks=False)
                os.chown(there, facts.st_uid, facts.st_gid)
                os.chmod(there, stat.S_IMODE(facts.st_mode))
            merge(entry.path, there)


def replace(source: str, target: str) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        raise Refused(
            f"COPY: {target!r} is a directory in the image, and the copied {os.path.basename(source)!r} is not"
        )
    os.rename(source, target)


ACTS: Mapping[str, Callable[[Act], str | None]] = {
    "provision": provision,
    "look": look,
    "user": user,
    "workdir": workdir,
    "copy": copy,
}


def main() -> None:
    job = json.load(sys.stdin)
    if "target" in job:
        join(job)
    answer: dict[str, Any] = {"home": None}
    number = 0
    try:
        enter(job)
        for act in job["acts"]:
            answer["home"] = ACTS[act["act"]](act) or answer["home"]
            number += 1
    except Refused as refusal:
        answer = {"refused": str(refusal), "number": number}
    except OSError as error:
        answer = {"refused": f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), "number": number}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
