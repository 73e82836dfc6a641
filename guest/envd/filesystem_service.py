"""The methods of E2B's filesystem service, apart from the watching itself."""

from __future__ import annotations

import errno
import os
import stat

from envd.connect import ConnectError, Method
from envd.entries import NotADirectory, describe, ensure_directories
from envd.state import BadPath
from envd.threads import in_thread
from envd.watching import TooManyEvents, Watch, WatchFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from envd.connect import Call
    from envd.messages import Message
    from envd.state import State
    from envd.users import User

MAX_WATCHERS = 256
_CODES = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.ELOOP: "failed_precondition",
    errno.ENAMETOOLONG: "invalid_argument",
    errno.ENOSPC: "resource_exhausted",
    errno.EDQUOT: "resource_exhausted",
}


class FilesystemService:
    """Describe, list, make, move, remove and watch, all as root but in the asked user's name."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._watchers: dict[str, Watch] = {}

    def methods(self) -> dict[str, Method]:
        service = "/filesystem.Filesystem/"
        return {
            service + "Stat": Method("StatRequest", "StatResponse", unary=self.stat),
            service + "MakeDir": Method("MakeDirRequest", "MakeDirResponse", unary=self.make_dir),
            service + "Move": Method("MoveRequest", "MoveResponse", unary=self.move),
            service + "ListDir": Method("ListDirRequest", "ListDirResponse", unary=self.list_dir),
            service + "Remove": Method("RemoveRequest", "Empty", unary=self.remove),
            service + "WatchDir": Method("WatchDirRequest", "WatchDirResponse", server_stream=self.watch_dir),
            service + "CreateWatcher": Method(
                "CreateWatcherRequest", "CreateWatcherResponse", unary=self.create_watcher
            ),
            service + "GetWatcherEvents": Method(
                "GetWatcherEventsRequest", "GetWatcherEventsResponse", unary=self.get_watcher_events
            ),
            service + "RemoveWatcher": Method("RemoveWatcherRequest", "Empty", unary=self.remove_watcher),
        }

    async def stat(self, call: Call, request: Message) -> Message:
        return {"entry": _known(call, self._entry(self._resolve(request.get("path", ""), call.user())))}

    async def make_dir(self, call: Call, request: Message) -> Message:
        user = call.user()
        path = self._resolve(request.get("path", ""), user)
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = None
        except OSError as error:
            raise _failure("error getting file info", error) from error
        if mode is not None and stat.S_ISDIR(mode):
            raise ConnectError("already_exists", f"directory already exists: {path}")
        if mode is not None:
            raise ConnectError("invalid_argument", f"path already exists but it is not a directory: {path}")
        _make_directories(path, user)
        return {"entry": _known(call, self._entry(path))}

    async def move(self, call: Call, request: Message) -> Message:
        user = call.user()
        source = self._resolve(request.get("source", ""), user)
        destination = self._resolve(request.get("destination", ""), user)
        _make_directories(os.path.dirname(destination), user)
        try:
            os.rename(source, destination)
        except FileNotFoundError as error:
            raise ConnectError("not_found", f"source file not found: {source}") from error
        except OSError as error:
            raise ConnectError("internal", f"error renaming: {error.strerror}: {source} to {destination}") from error
        return {"entry": _known(call, self._entry(destination))}

    async def list_dir(self, call: Call, request: Message) -> Message:
        requested = os.path.normpath(self._resolve(request.get("path", ""), call.user()))
        depth = request.get("depth", 0) or 1
        try:
            root = os.path.realpath(requested, strict=True)
            if not os.path.isdir(root):
                raise ConnectError("invalid_argument", f"path is not a directory: {root}")
            if depth == 1:
                found = list(self._walk(requested, root, 1))
            else:
                found = await in_thread(lambda: list(self._walk(requested, root, depth)))
        except OSError as error:
            raise _failure("error reading directory", error) from error
        return {"entries": [_known(call, entry) for entry in found]}

    def _walk(self, shown: str, real: str, depth: int) -> Iterator[Message]:
        with os.scandir(real) as scan:
            children = sorted(scan, key=lambda child: child.name)
        for child in children:
            try:
                entry = describe(child.path, self._state.users)
            except FileNotFoundError:
                continue
            entry["path"] = os.path.join(shown, child.name)
            yield entry
            if depth > 1 and child.is_dir(follow_symlinks=False):
                try:
                    yield from self._walk(entry["path"], child.path, depth - 1)
                except FileNotFoundError:
                    continue

    async def remove(self, call: Call, request: Message) -> Message:
        path = self._resolve(request.get("path", ""), call.user())
        if os.path.normpath(path) == "/":
            raise ConnectError("invalid_argument", "the root directory cannot be removed")
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                await in_thread(lambda: remove_tree(path))
            else:
                os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, RecursionError) as error:
            raise ConnectError("internal", f"error removing file or directory: {error}") from error
        return {}

    # watching

    def watch_dir(self, call: Call, request: Message) -> AsyncIterator[Message]:
        return self._stream(self._open_watch(call, request), call.keepalive())

    async def _stream(self, watch: Watch, keepalive: float) -> AsyncIterator[Message]:
        try:
            yield {"start": {}}
            while True:
                events = await watch.wait(keepalive)
                if not events:
                    yield {"keepalive": {}}
                for event in events:
                    yield {"filesystem": event}
        except (TooManyEvents, WatchFailed) as error:
            raise ConnectError("internal", f"watcher error: {error}") from error
        finally:
            watch.close()

    async def create_watcher(self, call: Call, request: Message) -> Message:
        if len(self._watchers) >= MAX_WATCHERS:
            raise ConnectError("resource_exhausted", f"there are already {MAX_WATCHERS} watchers: remove one first")
        watch = self._open_watch(call, request)
        watcher_id = "w" + os.urandom(10).hex()
        self._watchers[watcher_id] = watch
        return {"watcherId": watcher_id}

    async def get_watcher_events(self, call: Call, request: Message) -> Message:
        try:
            return {"events": self._watcher(request).drain()}
        except (TooManyEvents, WatchFailed) as error:
            raise ConnectError("internal", f"watcher error: {error}") from error

    async def remove_watcher(self, call: Call, request: Message) -> Message:
        self._watcher(request).close()
        del self._watchers[request["watcherId"]]
        return {}

    def _watcher(self, request: Message) -> Watch:
        watcher_id = request.get("watcherId", "")
        watch = self._watchers.get(watcher_id)
        if watch is None:
            raise ConnectError("not_found", f"watcher with id {watcher_id} not found")
        return watch

    def _open_watch(self, call: Call, request: Message) -> Watch:
        path = os.path.normpath(self._resolve(request.get("path", ""), call.user()))
        describe_entry = self._entry_or_none if request.get("includeEntry") else None
        try:
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise ConnectError("invalid_argument", f"path {path} not a directory")
            watch = Watch(path, bool(request.get("recursive")), describe_entry)
        except OSError as error:
            raise _failure(f"error watching path {path}", error) from error
        if not request.get("allowNetworkMounts") and watch.is_on_network_mount():
            watch.close()
            raise ConnectError("invalid_argument", f"cannot watch path on network filesystem: {path}")
        return watch

    def _entry_or_none(self, path: str) -> Message | None:
        try:
            return describe(path, self._state.users)
        except OSError:
            return None

    def _entry(self, path: str) -> Message:
        try:
            return describe(path, self._state.users)
        except OSError as error:
            raise _failure("error getting file info", error) from error

    def _resolve(self, path: str, user: User) -> str:
        try:
            return self._state.resolve(path, user) or user.home
        except BadPath as error:
            raise ConnectError("invalid_argument", str(error)) from error


def _failure(doing: str, error: OSError) -> ConnectError:
    code = _CODES.get(error.errno or 0, "internal")
    lead = "file not found" if code == "not_found" else doing
    return ConnectError(code, f"{lead}: {error.strerror}: {error.filename}")


def _make_directories(path: str, user: User) -> None:
    try:
        ensure_directories(path, user)
    except NotADirectory as error:
        raise ConnectError("invalid_argument", str(error)) from error
    except OSError as error:
        raise _failure("failed to create directory", error) from error


def remove_tree(path: str, parent: int | None = None) -> None:
    """Remove a directory and all below it, never through a symlink. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        with os.scandir(descriptor) as scan:
            children = [(child.name, child.is_dir(follow_symlinks=False)) for child in scan]
        for name, is_directory in children:
            if is_directory:
                remove_tree(name, descriptor)
            else:
                try:
                    os.unlink(name, dir_fd=descriptor)
                except FileNotFoundError:
                    continue
    finally:
        os.close(descriptor)
    os.rmdir(path, dir_fd=parent)


def _known(call: Call, entry: Message) -> Message:
    return entry if call.takes_new_fields else {name: entry[name] for name in ("name", "type", "path")}
