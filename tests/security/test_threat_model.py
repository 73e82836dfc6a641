"""The table of attacks in the threat model names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (ROOT / "docs/explanation/threat-model.md").read_text()
    named = re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)((?:::\w+)*)`", text)
    assert len(named) > 30
    missing = []
    for file, names in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "tests/security" / file
        known = path.read_text() if path.is_file() else ""
        if not known or any(
            f"def {name}(" not in known and f"class {name}:" not in known for name in names.split("::")[1:]
        ):
            missing.append(f"{file}{names}")
    assert not missing
