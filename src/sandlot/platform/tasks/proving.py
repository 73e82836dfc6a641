"""The proof of one attempt: what failed elsewhere is seen to fail here before the agent works, and to pass twice after it."""

from __future__ import annotations

from dataclasses import replace

from sandlot.platform.core.forges import Repository
from sandlot.platform.core.proofs import Proof, ProofOutcome, ProofSpec, Trial, TrialRun
from sandlot.platform.core.tasks import AttemptStatus, EntryKind, Task, TaskStatus
from sandlot.platform.git.records import Prepared
from sandlot.platform.tasks import prompts
from sandlot.platform.tasks.attempt_record import AttemptRecord, Ends
from sandlot.platform.tasks.reporting import TaskReports
from sandlot.platform.tasks.trials import shortened, trial_run, trial_script, unlike
from sandlot.platform.tasks.turns import AgentTurns, TurnPlace

KEPT = 6000  # letters of a run's output in the record
GREEN_RUNS = 2


class Proving:
    def __init__(
        self, record: AttemptRecord, *, repository: Repository, prepared: Prepared, reports: TaskReports
    ) -> None:
        self._record, self._repository, self._prepared, self._reports = record, repository, prepared, reports

    # -- before the agent works -------------------------------------------------------------------------------------

    async def reproduce(self, place: TurnPlace) -> None:
        """Raises `Ends` if there is nothing to fix, or nothing that could be shown."""
        task, attempt = await self._record.now()
        spec = spec_of(task)
        if attempt.proof is not None and attempt.turn:  # an earlier run did this
            return
        if self._prepared.base_sha != spec.sha:
            await self._ends(moved(spec))
        if spec.problem is not None:
            return await self._not_reproducible(spec, Proof(outcome=ProofOutcome.RED), [spec.problem])
        await self._reports.progress(task, self._repository, "reproducing the failure")
        proof = await self._seen(place, spec)
        if proof.targets:
            await self._note(replace(proof, guards=await self._guards(place, spec)))
            await self._reports.progress(task, self._repository, "reproduced; the agent is at it")
            return
        if proof.outcome is ProofOutcome.FLAKY:
            await self._ends(proof)
        await self._not_reproducible(spec, proof, [proof.words])

    async def _seen(self, place: TurnPlace, spec: ProofSpec) -> Proof:
        before: list[TrialRun] = []
        targets, flaky, problems = [], [], []
        for number, trial in enumerate(spec.trials, start=1):
            if not trial.failed:
                continue
            run, code = await self._run(place, trial, number, spec.sha, "red1")
            before.append(run)
            if run.is_green:
                again, _ = await self._run(place, trial, number, spec.sha, "red2")
                before.append(again)
                flaky.append(trial.name)
            elif (problem := unlike(trial, run, code)) is not None:
                problems.append(f"{trial.name}: {problem}")
            else:
                targets.append(trial.name)
        outcome, words = ProofOutcome.RED, ""
        if not targets and flaky and not problems:
            outcome = ProofOutcome.FLAKY
            words = f"{', '.join(flaky)} passes here without a change: it is flaky, and nothing was changed"
        elif not targets:
            words = "; ".join(problems) or "nothing of it could be run here"
        return Proof(outcome=outcome, words=words, targets=tuple(targets), before=tuple(before))

    async def _guards(self, place: TurnPlace, spec: ProofSpec) -> tuple[str, ...]:
        """What passed there and passes here has to pass afterwards, too."""
        found = []
        for number, trial in enumerate(spec.trials, start=1):
            if not trial.failed:
                run, _ = await self._run(place, trial, number, spec.sha, "red1")
                if run.is_green:
                    found.append(trial.name)
        return tuple(found)

    async def _not_reproducible(self, spec: ProofSpec, proof: Proof, problems: list[str]) -> None:
        words = f"not reproducible: {'; '.join(problems)}"[:1500]
        found = replace(proof, outcome=ProofOutcome.NOT_REPRODUCIBLE, words=words)
        task, _ = await self._record.now()
        if spec.unproven or task.pending:  # the rule allows it, or a person says what to do
            await self._note(found)
            return
        await self._ends(found)

    # -- after the agent worked -------------------------------------------------------------------------------------

    async def prove(self, place: TurnPlace, turns: AgentTurns) -> None:
        """Raises `Again` when the agent has to go on, `Ends` when it may not try any more."""
        task, attempt = await self._record.now()
        spec, proof = spec_of(task), attempt.proof
        if proof is None or not proof.targets:
            await self._record.steps.note(self._record.number, "prove")
            return
        await self._record.do("prove", lambda: self._green(place, spec, proof, attempt.turn))
        _, attempt = await self._record.now()
        found = attempt.proof
        if found is None or found.outcome is ProofOutcome.FIXED:
            return
        await self._record.steps.fail(self._record.number, "prove", found.words)
        reason = f"it is not fixed: {found.words}; send it a message or retry it"
        await self._record.failed_once_more(turns, prompts.proof_prompt(found.after[-1]), "proof", reason)

    async def _green(self, place: TurnPlace, spec: ProofSpec, proof: Proof, turn: int) -> None:
        """Of what the git server has of it, up to the first that is not."""
        commit = await self._record.parts.git.head(self._record.task_id, self._record.number) or spec.sha
        runs: list[TrialRun] = []
        for number, trial in enumerate(spec.trials, start=1):
            times = GREEN_RUNS if trial.name in proof.targets else int(trial.name in proof.guards)
            for time in range(times):
                run, _ = await self._run(place, trial, number, commit, f"green{time + 1}-{turn}")
                runs.append(run)
                if not run.is_green:
                    words = f"{run.trial}: the step {run.step!r} ends with exit code {run.exit_code} after the change"
                    return await self._note(
                        replace(proof, outcome=ProofOutcome.NOT_FIXED, words=words, after=tuple(runs))
                    )
        words = f"{', '.join(proof.targets)}: red before the change, green twice after it, by the same commands"
        await self._note(replace(proof, outcome=ProofOutcome.FIXED, words=words, after=tuple(runs)))

    async def unchanged(self) -> Ends | None:
        """The agent changed nothing, and yet it passes now."""
        _, attempt = await self._record.now()
        if attempt.proof is None or attempt.proof.outcome is not ProofOutcome.FIXED:
            return None
        words = "it was red once, and green twice without a change: it is flaky, and nothing was changed"
        await self._note(replace(attempt.proof, outcome=ProofOutcome.FLAKY, words=words))
        return Ends(TaskStatus.DONE, words, AttemptStatus.UNCHANGED)

    async def check_head(self, sha: str) -> None:
        """Raises `Ends` if the branch has gone on."""
        task, attempt = await self._record.now()
        if task.spec.proof is not None and sha != task.spec.proof.sha:
            kept = attempt.proof or Proof(outcome=ProofOutcome.MOVED)
            found = moved(task.spec.proof)
            await self._ends(replace(kept, outcome=found.outcome, words=found.words))

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _run(
        self, place: TurnPlace, trial: Trial, number: int, commit: str, series: str
    ) -> tuple[TrialRun, int | None]:
        record = self._record
        script = trial_script(trial, checkout=place.directory, repository=self._repository.name, commit=commit)
        result = await record.parts.checks.one(place, script, f"{series}-{record.run}", number)
        run = trial_run(trial, result)
        shown = f"{trial.name}: {trial.steps[-1].script.strip()}"[:2000]
        said = {"passed": int(run.is_green), "failed": int(not run.is_green), "exit_code": run.exit_code}
        phase = "before" if series.startswith("red") else "after"
        await record.tell(EntryKind.TEST, shown, command=shown, output=run.output, phase=phase, **said)
        return shortened(run, KEPT), result.exit_code

    async def _note(self, proof: Proof) -> None:
        await self._record.change(proof=proof)

    async def _ends(self, proof: Proof) -> None:
        await self._note(proof)
        to, status = ENDINGS[proof.outcome]
        raise Ends(to, proof.words, status)


ENDINGS = {
    ProofOutcome.FLAKY: (TaskStatus.DONE, AttemptStatus.UNCHANGED),
    ProofOutcome.NOT_REPRODUCIBLE: (TaskStatus.NEEDS_YOU, AttemptStatus.UNCHANGED),
    ProofOutcome.MOVED: (TaskStatus.CANCELLED, AttemptStatus.UNCHANGED),
}


def spec_of(task: Task) -> ProofSpec:
    assert task.spec.proof is not None
    return task.spec.proof


def moved(spec: ProofSpec) -> Proof:
    words = f"{spec.branch} has moved on from {spec.sha[:10]}: stopped, and nothing was pushed"
    return Proof(outcome=ProofOutcome.MOVED, words=words)
