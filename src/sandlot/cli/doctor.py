"""The doctor command: every check of this host, each with its fix."""

from __future__ import annotations

from dataclasses import asdict

import typer

from sandlot.cli import output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.program import SANDLOT

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@of_instance
def doctor(*, as_json: Json = False) -> None:
    """Check this host: what Sandlot needs, what is missing, and how to get it. Changes nothing."""
    from sandlot.setup import checks

    findings = []
    for finding in checks.examine(settings()):
        findings.append(finding)
        if not as_json:
            mark, style = _MARKS[finding.state]
            print(f"{output.paint(mark, style)} {finding.name}: {finding.detail}", flush=True)
            if finding.state != "ok" and finding.fix:
                print(f"    fix: {finding.fix}", flush=True)
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    failing = sum(finding.state == "fail" for finding in findings)
    if failing:
        output.say(f"{failing} of {len(findings)} checks failed. `{SANDLOT} up` installs programs that are missing.")
        raise typer.Exit(1)
    if not as_json:
        output.say("This host can run sandboxes.")
