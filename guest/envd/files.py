"""Uploads and downloads over plain HTTP: who may, which file, in which encoding."""

from __future__ import annotations

import errno
import os
import stat
import time
from binascii import b2a_base64

from envd import downloads, entries
from envd.codecs import Undecodable, parse_json
from envd.http import HttpError
from envd.multipart import Multipart, boundary_of
from envd.state import BadPath
from envd.threads import in_thread
from envd.users import UnknownUser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from envd.http import Reply, Request
    from envd.state import State
    from envd.users import User

    Reader = Callable[[], Awaitable[bytes]]

MAX_JSON = 1024 * 1024
_STATUS = {
    errno.ENOSPC: 507,
    errno.EDQUOT: 507,
    errno.EISDIR: 400,
    errno.ENOTDIR: 400,
    errno.ENAMETOOLONG: 400,
    errno.ELOOP: 400,
    errno.ENXIO: 400,
    errno.ENOENT: 404,
    errno.EACCES: 403,
    errno.EPERM: 403,
    errno.EROFS: 403,
    errno.ETXTBSY: 409,
}


class Files:
    """GET and POST /files, POST /files/compose."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def download(self, request: Request, reply: Reply) -> None:
        self._authorize(request, "read")
        user = self._user(request.query.get("username"))
        path = self._resolve(request.query.get("path", ""), user)
        try:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                raise HttpError(400, f"path '{_shown(path)}' is a directory")
            if not stat.S_ISREG(mode):
                raise HttpError(400, f"path '{_shown(path)}' is not a regular file")
            file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed below, where its failure is no longer ours
        except (FileNotFoundError, NotADirectoryError) as error:
            raise HttpError(404, f"path '{_shown(path)}' does not exist") from error
        except OSError as error:
            raise _failure("error opening file", error) from error
        with file:
            try:
                await downloads.send(request, reply, file, os.path.basename(path))
            except OSError as error:
                if reply.started:
                    raise
                raise HttpError(400, f"path '{_shown(path)}' cannot be read: {error.strerror}") from error

    async def upload(self, request: Request, reply: Reply) -> None:
        self._authorize(request, "write")
        user = self._user(request.query.get("username"))
        read = _decoded_body(request)
        metadata = _metadata(request)
        content_type = request.headers.get("content-type", "")
        media_type = content_type.split(";")[0].strip().lower()
        if media_type == "application/octet-stream":
            written = [await self._upload_raw(request, user, metadata, read)]
        elif media_type.startswith("multipart/"):
            form = Multipart(read, boundary_of(content_type))
            written = await self._upload_form(request, user, metadata, form)
        else:
            raise HttpError(
                400,
                f"unsupported content type: {content_type[:200]}, expected multipart/form-data or application/octet-stream",
            )
        await reply.send_json(200, written)

    async def _upload_raw(
        self, request: Request, user: User, metadata: dict[str, str], read: Reader
    ) -> dict[str, object]:
        if "path" not in request.query:
            raise HttpError(400, "path query parameter is required for raw body upload")
        return await _store(self._resolve(request.query["path"], user), user, metadata, read)

    async def _upload_form(
        self, request: Request, user: User, metadata: dict[str, str], form: Multipart
    ) -> list[dict[str, object]]:
        written: dict[str, dict[str, object]] = {}
        while (part := await form.next_part()) is not None:
            if part.get("name") != "file":
                continue
            name = request.query.get("path", part.get("filename"))
            if name is None:
                raise HttpError(
                    400, "a file in the form has no filename, and no path query parameter says where to put it"
                )
            path = self._resolve(name, user)
            if path in written:
                raise HttpError(
                    400,
                    f"you cannot upload multiple files to the same path '{_shown(path)}' in one upload request, "
                    "only the first specified file was uploaded",
                )
            written[path] = await _store(path, user, metadata, form.read)
        return list(written.values())

    async def compose(self, request: Request, reply: Reply) -> None:
        """Concatenate files into one and delete them."""
        try:
            wish = parse_json(await request.body.read_all(MAX_JSON))
        except Undecodable as error:
            raise HttpError(400, f"invalid request body: {error}") from error
        names, destination, username = _compose_wish(wish)
        user = self._user(username)
        target = self._resolve(destination, user)
        sources = [self._resolve(name, user) for name in names]
        for name, source in zip(names, sources, strict=True):
            if source == target:
                raise HttpError(400, f"source path {name!r} cannot be the same as destination")
            if not os.path.exists(source):
                raise HttpError(404, f"source file not found: {name}")
            if not os.path.isfile(source):
                raise HttpError(400, f"source path is not a regular file: {name}")
        try:
            _ensure_parent(target, user)
            await in_thread(lambda: _concatenate(sources, target, user))
        except OSError as error:
            raise _failure("error composing files", error) from error
        await reply.send_json(200, _written(target))

    def _authorize(self, request: Request, operation: str) -> None:
        """Raises `HttpError` unless the request carries the token, or was signed with it."""
        token, query = self._state.token, request.query
        if token is None:
            return
        given = request.headers.get("x-access-token")
        if given:
            if not self._state.allows(given):
                raise HttpError(401, "access token present in header but does not match")
            return
        if "signature" not in query:
            raise HttpError(401, "missing signature query parameter")
        expires = query.get("signature_expiration")
        parts = [query.get("path", ""), operation, query.get("username", ""), token]
        signed = ":".join(parts if expires is None else [*parts, expires])
        if not self._state.matches(query["signature"], sign(signed)):
            raise HttpError(401, "invalid signature")
        if expires is not None and (not expires.lstrip("-").isdecimal() or int(expires) < time.time()):
            raise HttpError(401, "signature is already expired")

    def _user(self, name: str | None) -> User:
        try:
            return self._state.user(name)
        except UnknownUser as error:
            raise HttpError(401, f"error looking up user '{error}': unknown user") from error

    def _resolve(self, path: str, user: User) -> str:
        try:
            return self._state.resolve(path, user) or user.home
        except BadPath as error:
            raise HttpError(400, f"error resolving path: {error}") from error


def sign(text: str) -> str:
    # The hash module itself: `hashlib` would load OpenSSL with it.
    try:
        from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from _sha256 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
    return "v1_" + b2a_base64(digest, newline=False).rstrip(b"=").decode("ascii")


def _compose_wish(wish: object) -> tuple[list[str], str, str | None]:
    if not isinstance(wish, dict):
        raise HttpError(400, "invalid request body: it must be an object")
    names, destination, username = wish.get("source_paths"), wish.get("destination"), wish.get("username")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise HttpError(400, "source_paths must not be empty and must hold strings")
    if not isinstance(destination, str) or not destination:
        raise HttpError(400, "destination is required")
    if username is not None and not isinstance(username, str):
        raise HttpError(400, "username must be a string")
    return names, destination, username


def _concatenate(sources: list[str], target: str, user: User) -> None:
    part = f"{target}.compose-{os.urandom(8).hex()}.tmp"
    try:
        with open(part, "xb", buffering=0) as out:
            os.fchown(out.fileno(), user.uid, user.gid)
            for source in sources:
                with open(source, "rb", buffering=0) as file:
                    while piece := file.read(1024 * 1024):
                        _write_all(out.fileno(), piece)
        os.rename(part, target)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    for source in sources:
        os.unlink(source)


async def _store(path: str, user: User, metadata: dict[str, str], read: Reader) -> dict[str, object]:
    """Write what `read` gives to `path`, in the user's name."""
    try:
        _ensure_parent(path, user)
        # Never wait for the other end of a named pipe.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchown(descriptor, user.uid, user.gid)
            while piece := await read():
                _write_all(descriptor, piece)
            entries.write_metadata(descriptor, metadata)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _failure("error writing file", error) from error
    return _written(path)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _ensure_parent(path: str, user: User) -> None:
    try:
        entries.ensure_directories(os.path.dirname(path) or "/", user)
    except entries.NotADirectory as error:
        raise HttpError(400, f"error ensuring directories: {error}") from error


def _written(path: str) -> dict[str, object]:
    entry: dict[str, object] = {"name": _shown(os.path.basename(path)), "type": "file", "path": _shown(path)}
    if metadata := entries.read_metadata(path):
        entry["metadata"] = metadata
    return entry


def _metadata(request: Request) -> dict[str, str]:
    prefix = "x-metadata-"
    found = {
        name[len(prefix) :]: value
        for name, value in request.headers.items()
        if name.startswith(prefix) and len(name) > len(prefix)
    }
    try:
        entries.check_metadata(found)
    except ValueError as error:
        raise HttpError(400, f"invalid metadata: {error}") from error
    return found


def _decoded_body(request: Request) -> Reader:
    encoding = request.headers.get("content-encoding", "identity").split(";")[0].strip().lower()
    if encoding in ("identity", ""):
        return request.body.read
    if encoding != "gzip":
        raise HttpError(400, f"error decompressing request body: unsupported Content-Encoding: {encoding[:80]}")
    return downloads.Gunzip(request.body.read).read


def _failure(doing: str, error: OSError) -> HttpError:
    status = _STATUS.get(error.errno or 0, 500)
    message = "not enough disk space available" if status == 507 else f"{error.strerror}: {_shown(str(error.filename))}"
    return HttpError(status, f"{doing}: {message}")


def _shown(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
