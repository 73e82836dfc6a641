"""`./sandlot compat run`: installs released clients, runs their scenarios against servers of its own, and writes the page of results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.compat.clients import KINDS, Outcomes, matrix, try_client
from tests.e2e.server import Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
MODES = {"plain": (), "TLS": ("--domain", "compat.localhost")}
TITLES = {
    "python": "Python SDK (`e2b`)",
    "python-interpreter": "Python code interpreter (`e2b-code-interpreter`)",
    "js": "JavaScript SDK (`e2b`)",
    "js-interpreter": "JavaScript code interpreter (`@e2b/code-interpreter`)",
    "cli": "Command line (`@e2b/cli`)",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./sandlot compat run", description=__doc__)
    parser.add_argument("--only", help="kinds of clients, comma-separated: " + ", ".join(KINDS))
    parser.add_argument("--versions", help="these versions alone, comma-separated")
    parser.add_argument("--modes", default=",".join(MODES), help="plain, TLS or both (default)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/reference/compatibility.md as it is")
    wanted = parser.parse_args()
    kinds = wanted.only.split(",") if wanted.only else list(KINDS)
    chosen = {
        kind: [version for version in matrix()[kind]["versions"] if _is_wanted(version, wanted.versions)]
        for kind in kinds
    }
    results: dict[str, Outcomes] = {}
    for mode in wanted.modes.split(","):
        results[mode] = _tried(mode, chosen)
    page = render(results, chosen)
    if not wanted.no_page:
        PAGE.write_text(page)
        print(f"wrote {PAGE}", file=sys.stderr)
    return int(
        any(fact["ok"] is False for found in results.values() for each in found.values() for fact in each.values())
    )


def _is_wanted(version: str, versions: str | None) -> bool:
    return versions is None or version in versions.split(",")


def _tried(mode: str, chosen: dict[str, list[str]]) -> Outcomes:
    outcomes: Outcomes = {}
    with tempfile.TemporaryDirectory(prefix="sandlot-compat-", dir="/var/tmp") as directory:
        needs_interpreter = any(kind.endswith("interpreter") for kind in chosen)
        options = ("--no-hello", *MODES[mode], *(("--with", "interpreter") if needs_interpreter else ()))
        server = Server(data_dir=Path(directory) / "data", options=options)
        server.cli("up", "--detach", *options, timeout=1800)
        try:
            for kind, versions in chosen.items():
                for version in versions:
                    found = try_client(kind, version, server.env)
                    outcomes[kind, version] = found
                    bad = [name for name, fact in found.items() if fact["ok"] is False]
                    told = f"{len(found) - len(bad)} of {len(found)}" + (f", not: {', '.join(bad)}" if bad else "")
                    print(f"{mode}: {kind} {version}: {told}", file=sys.stderr, flush=True)
        finally:
            server.cli("down", check=False)
    return outcomes


def render(results: dict[str, Outcomes], chosen: dict[str, list[str]]) -> str:
    """The page: a table for each kind of client, methods by versions, and what failed in words."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    lines = [
        "# Compatibility, method by version",
        "",
        f"Written by `./sandlot compat run` on {day}: each released client was installed from its registry, unmodified, and ran one scenario",
        "for each method (`tests/compat`), against a server with its defaults (plain HTTP where the client can, TLS where it insists) and against one",
        "with a domain (TLS alone). **yes**: both; **plain**, **TLS**: this one alone; **no**: neither; –: the release does not have the method.",
    ]
    problems: list[str] = []
    for kind, versions in chosen.items():
        methods = list(
            dict.fromkeys(m for found in results.values() for v in versions for m in found.get((kind, v), {}))
        )
        lines += [
            "",
            f"## {TITLES[kind]}",
            "",
            "| | " + " | ".join(versions) + " |",
            "| --- |" + " --- |" * len(versions),
        ]
        for method in methods:
            cells = [_cell(results, kind, version, method) for version in versions]
            lines.append(f"| {method.replace('_', ' ')} | " + " | ".join(cells) + " |")
        for mode, found in results.items():
            for version in versions:
                for method, fact in found.get((kind, version), {}).items():
                    if fact["ok"] is False:
                        problems.append(f"- {kind} {version}, {method}, {mode}: `{str(fact['why']).replace('`', '')}`")
    if problems:
        lines += ["", "## What failed", "", *problems]
    return "\n".join(lines) + "\n"


def _cell(results: dict[str, Outcomes], kind: str, version: str, method: str) -> str:
    facts = {mode: found.get((kind, version), {}).get(method, {"ok": False})["ok"] for mode, found in results.items()}
    if all(fact is None for fact in facts.values()):
        return "–"
    good = [mode for mode, fact in facts.items() if fact]
    return "yes" if len(good) == len(facts) else (good[0] if good else "**no**")


if __name__ == "__main__":
    sys.exit(main())
