"""The sample repository, and the work on it that the scripted agent can do: a demonstration without a model or the internet."""

from __future__ import annotations

from collections.abc import Mapping

from sandlot.data_files import data_files

DEMO_NAME = "split"
DEMO_AGENT, DEMO_TEMPLATE = "scripted", "base"
DEMO_PROMPT = "Fix rounding: 100 split by three makes 99.99. Nobody should lose a cent."
DEMO_CHECK = "python3 -m unittest discover -s tests"
DEMO_FOLLOW_UP = "Say in the code why the first people pay more."
DEMO_OTHERS = (
    "Add a --json flag that prints the shares as one object.",
    "Show the currency behind every amount.",  # it asks how
)
"""Other work that the agent knows how to do there."""


def demo_repository() -> Mapping[str, bytes]:
    """The files of the first commit, by their path in the repository."""
    root = data_files("agents") / "demo" / "repository"
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
