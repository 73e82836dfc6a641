"""The nouns of proofs: what failed elsewhere, the commands that show it, and what came of them before and after a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStep:
    """One step of a job: a script, and how it is run."""

    name: str
    script: str
    shell: str = "bash -e {0}"
    directory: str = "."  # inside the checkout
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A job of a workflow as commands: the last step counts, those before it prepare."""

    name: str
    steps: tuple[TrialStep, ...]
    failed: bool  # at the forge; one that passed there must not get worse
    exit_code: int | None = None  # at the forge, where its log tells
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSpec:
    """What failed, and what a task has to show before its change is pushed."""

    sha: str
    branch: str
    title: str  # of the workflow or the check
    url: str
    pull: int | None = None  # the open pull request of the branch: it gets the change
    log: str = ""  # the part of the forge's log that tells most
    trials: tuple[Trial, ...] = ()
    problem: str | None = None  # why nothing of it can be run here
    unproven: bool = False  # a change without a proof may become a pull request of its own


class ProofOutcome(StrEnum):
    RED = "red"  # reproduced; the agent is at it
    FIXED = "fixed"
    FLAKY = "flaky"
    NOT_REPRODUCIBLE = "not_reproducible"
    NOT_FIXED = "not_fixed"
    MOVED = "moved"  # the branch went on without us


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun:
    """One run of a trial. `step` is the one that it came to."""

    trial: str
    step: str
    exit_code: int | None
    output: str
    seconds: float
    is_green: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What trials came to, of one attempt."""

    outcome: ProofOutcome
    words: str = ""
    targets: tuple[str, ...] = ()  # trials that are red here, too
    guards: tuple[str, ...] = ()  # trials that are green here, and have to stay so
    before: tuple[TrialRun, ...] = ()
    after: tuple[TrialRun, ...] = ()
