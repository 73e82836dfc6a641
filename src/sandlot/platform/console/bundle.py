"""The console's files: the built bundle, read from the package, with headers that keep everything from elsewhere out."""

from __future__ import annotations

import gzip
import mimetypes
import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sandlot.data_files import PACKAGE

INDEX = "index.html"
ASSETS = "assets/"  # names there carry a hash of the content
STATIC = PACKAGE / "console" / "static"
MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Sandlot</title>
<meta name="viewport" content="width=device-width"><h1>The console is not in this checkout</h1>
<p>Its built files are missing. The API works without them.</p></html>
"""
ENCODINGS = {"br": ".br", "gzip": ".gz"}  # in order of preference
SMALLER = {".css", ".html", ".js", ".json", ".svg"}  # what gets smaller by compression; fonts and images do not
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".webmanifest": "application/manifest+json"}


@dataclass(frozen=True, slots=True)
class BundleFile:
    content: bytes
    media_type: str
    encoding: str | None
    is_hashed: bool


class Bundle:
    """Everything below one directory, by the names that it has there. Nothing else can be read through it."""

    def __init__(self, directory: Path = STATIC) -> None:
        self._directory = directory
        self._kept: dict[str, tuple[int, bytes]] = {}
        self._gzips: dict[str, tuple[bytes, bytes]] = {}

    def page(self, accepted: Collection[str] = ()) -> BundleFile:
        """The one page of the application: it finds out by the address what to show."""
        return self.file(INDEX, accepted) or BundleFile(MISSING, "text/html", None, False)

    def file(self, name: str, accepted: Collection[str] = ()) -> BundleFile | None:
        """A file by its path, compressed if the client takes it: beforehand, if there is such a file, else here, once."""
        suffix = posixpath.splitext(name)[1]
        if not suffix or suffix in ENCODINGS.values() or name not in self._names():
            return None
        for encoding, ending in ENCODINGS.items():
            if encoding in accepted and name + ending in self._names():
                return BundleFile(self._read(name + ending), _type(suffix), encoding, name.startswith(ASSETS))
        if "gzip" in accepted and suffix in SMALLER:
            return BundleFile(self._gzipped(name), _type(suffix), "gzip", name.startswith(ASSETS))
        return BundleFile(self._read(name), _type(suffix), None, name.startswith(ASSETS))

    def _names(self) -> set[str]:
        """Of all files. Read anew each time: whoever works on the bundle need not start the server again."""
        root = self._directory
        return (
            {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
            if root.is_dir()
            else set()
        )

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        changed, known = path.stat().st_mtime_ns, self._kept.get(name)
        if known is None or known[0] != changed:
            known = self._kept[name] = (changed, path.read_bytes())
        return known[1]

    def _gzipped(self, name: str) -> bytes:
        plain = self._read(name)
        known = self._gzips.get(name)
        if known is None or known[0] is not plain:
            known = self._gzips[name] = (plain, gzip.compress(plain, mtime=0))
        return known[1]


def _type(suffix: str) -> str:
    return _TYPES.get(suffix) or mimetypes.types_map.get(suffix, "application/octet-stream")


def security_headers(frames: Collection[str] = ()) -> dict[str, str]:
    """For pages of the console. `frames`: whose pages it may show inside its own, each on a host of its own."""
    policy = {
        "default-src": "'self'",
        "script-src": "'self' 'wasm-unsafe-eval'",
        "style-src": "'self' 'unsafe-inline'",  # the component library writes style elements
        "img-src": "'self' data: blob:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "frame-src": " ".join(frames) or "'none'",
        "frame-ancestors": "'none'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "object-src": "'none'",
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    }
