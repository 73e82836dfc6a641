"""Where Debian packages come from: the archive this machine already uses, else Debian's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True)
class Archive:
    """Two addresses and the keys that sign what they serve (None: those apt trusts anyway)."""

    main: str = "http://deb.debian.org/debian"
    security: str = "http://deb.debian.org/debian-security"
    signed_by: str | None = str(KEYRING)

    def sources(self, suite: str, components: tuple[str, ...]) -> str:
        """Entries, in apt's deb822 format, for a suite with its updates and security fixes."""
        return self.entry(self.main, (suite, f"{suite}-updates"), components) + self.entry(
            self.security, (f"{suite}-security",), components
        )

    def entry(self, uri: str, suites: tuple[str, ...], components: tuple[str, ...]) -> str:
        signed_by = f"Signed-By: {self.signed_by}\n" if self.signed_by else ""
        return f"Types: deb\nURIs: {uri}\nSuites: {' '.join(suites)}\nComponents: {' '.join(components)}\n{signed_by}\n"


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of apt's configuration, as far as it concerns us."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None


def of_this_host(root: Path = Path("/")) -> Archive:
    """The archive a Debian host's own apt uses (a mirror, say); Debian's default anywhere else."""
    codename = debian_codename(root)
    if codename is None:
        return Archive()
    sources = list(read_sources(root / "etc/apt"))
    main = _serving(sources, codename, beside=f"{codename}-updates", path="/debian")
    security = _serving(sources, f"{codename}-security", beside=None, path="/debian-security")
    default = Archive()
    if main is None:
        return default
    return Archive(
        main=main.uris[0],
        security=security.uris[0] if security else default.security,
        signed_by=main.signed_by or default.signed_by,
    )


def debian_codename(root: Path = Path("/")) -> str | None:
    """The host's Debian release, or None on any other system (derivatives have archives of their own)."""
    try:
        lines = (root / "etc/os-release").read_text().splitlines()
    except OSError:
        return None
    facts = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    return facts.get("VERSION_CODENAME") if facts.get("ID") == "debian" else None


def read_sources(apt: Path) -> Iterator[Source]:
    for path in sorted([*apt.glob("sources.list"), *apt.glob("sources.list.d/*.list")]):
        for line in path.read_text(errors="replace").splitlines():
            yield from _one_line(line)
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        yield from _stanzas(path.read_text(errors="replace"))


def _one_line(line: str) -> Iterator[Source]:
    match = re.match(
        r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>[^#]*)", line.strip()
    )
    if match:
        signed_by = re.search(r"signed-by=(\S+)", match["options"] or "")
        yield Source(
            (match["uri"],), (match["suite"],), tuple(match["components"].split()), signed_by[1] if signed_by else None
        )


def _stanzas(text: str) -> Iterator[Source]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and name:
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no":
            key = fields.get("signed-by", "")
            yield Source(
                tuple(fields.get("uris", "").split()),
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                key if key.startswith("/") and " " not in key else None,
            )


def _serving(sources: list[Source], suite: str, beside: str | None, path: str) -> Source | None:
    """The entry for a suite of Debian itself. Third parties name their suites alike, but not all of it:
    Debian's have `main`, and either the updates at the same address or the usual path."""
    for source in sources:
        if not source.uris or suite not in source.suites or "main" not in source.components:
            continue
        uri = source.uris[0]
        has_updates = beside is not None and any(beside in other.suites and uri in other.uris for other in sources)
        if has_updates or uri.rstrip("/").endswith(path):
            return source
    return None
