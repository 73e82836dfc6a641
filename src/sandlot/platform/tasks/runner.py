"""Works on tasks: attempts side by side, the choice of one, the pull request, and how it all ends. Nothing is lost with this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sandlot.platform.core.errors import Conflict, HeadMoved, PlatformError
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.proofs import Proof, ProofOutcome
from sandlot.platform.core.task_ports import StepStore
from sandlot.platform.core.tasks import (
    Attempt,
    AttemptStatus,
    Entry,
    EntryKind,
    Task,
    TaskPolicy,
    TaskStatus,
)
from sandlot.platform.git.records import MIB, Prepared, PushPolicy
from sandlot.platform.git.service import result_ref
from sandlot.platform.tasks.artifacts import Artifacts
from sandlot.platform.tasks.attempt_record import AttemptParts, AttemptRecord, Ending
from sandlot.platform.tasks.attempts import AttemptRun
from sandlot.platform.tasks.forking import TaskForks
from sandlot.platform.tasks.proving import moved
from sandlot.platform.tasks.publishing import Publishing
from sandlot.platform.tasks.scoring import best_of
from sandlot.platform.tasks.steps import BeforeStep, RunSteps, no_step
from sandlot.platform.tasks.turns import attempt_of

log = logging.getLogger(__name__)
WATCH_S = 0.5
STOP_S = 90.0  # how long an agent's end is waited for
OURS = "an error of ours; the server's log has it. Retry it, and tell the operator"
ENDINGS = {
    "stop": Ending(to=TaskStatus.CANCELLED, reason="stopped by its user"),
    "pause": Ending(to=TaskStatus.NEEDS_YOU, reason="paused by its user; start it to go on"),
}
Find = Callable[[Task], Awaitable[Repository]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    policy: TaskPolicy
    hook: BeforeStep = no_step


class TaskRunner:
    def __init__(
        self,
        *,
        parts: AttemptParts,
        steps: StepStore,
        find: Find,
        publishing: Publishing,
        artifacts: Artifacts,
        forks: TaskForks,
        settings: RunnerSettings,
    ) -> None:
        self._parts, self._state, self._steps = parts, parts.state, steps
        self._find, self._publishing, self._artifacts, self._settings = find, publishing, artifacts, settings
        self._forks = forks

    async def work(self, task: Task) -> None:
        """Until it rests. Cancelled, it leaves everything for whoever goes on."""
        run = _Run(self, task)
        working = asyncio.ensure_future(run.guarded())
        watching = asyncio.ensure_future(self._wish(task.id))
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                ending = working.result()
            else:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                ending = ENDINGS[watching.result()]
                await run.stop()
        except asyncio.CancelledError:
            await asyncio.shield(run.let_go())
            raise
        finally:
            for each in (working, watching):
                each.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
        await self._finish(run, ending)

    async def rest(self, task: Task) -> None:
        """Let the sandboxes of a task that rests do so, too, if that was left undone."""
        run = _Run(self, task)
        if await run.is_left():
            await run.clean_up(task)

    async def _wish(self, id: str) -> str:
        """Returns when somebody wants it to stop."""
        while True:
            with contextlib.suppress(PlatformError):
                task = await self._state.get(id)
                if task.stop in ENDINGS:
                    return task.stop
            await asyncio.sleep(WATCH_S)

    async def _finish(self, run: _Run, ending: Ending) -> None:
        """Artifacts are kept, then the task rests, and last its sandboxes: nobody waits for that.

        What was said to it meanwhile queues it again. Sandboxes that a crash leaves running are paused when they have been idle.
        """
        await run.keep_artifacts(await self._state.get(run.task.id))
        await run.report(ending)
        if await self._moved(run, ending):
            await run.clean_up(await self._state.get(run.task.id))

    async def _moved(self, run: _Run, ending: Ending) -> bool:
        keep_until = self._state.clock() + timedelta(seconds=self._settings.policy.keep_sandbox_s)
        while True:
            task = await self._state.get(run.task.id)
            if task.status is not TaskStatus.WORKING or task.lease_owner != run.task.lease_owner:
                return False
            to, reason = ending.to, ending.reason
            if task.stop in ENDINGS:
                to, reason = ENDINGS[task.stop].to, ENDINGS[task.stop].reason
            elif task.pending and to is not TaskStatus.FAILED:
                to, reason = TaskStatus.QUEUED, None
            with contextlib.suppress(Conflict):
                await self._state.move(task, to, reason=reason, keep_until=keep_until)
                return True


class _Run:
    """One run of one task, in this process."""

    def __init__(self, runner: TaskRunner, task: Task) -> None:
        self._runner, self.task = runner, task
        self._parts, self._state, self._policy = runner._parts, runner._state, runner._settings.policy
        self._steps = RunSteps(
            task,
            store=runner._steps,
            timeline=self._state.timeline,
            clock=self._state.clock,
            hook=runner._settings.hook,
        )
        self._attempts: list[AttemptRun] = []
        self._preparing: asyncio.Future[Prepared] | None = None

    async def guarded(self) -> Ending:
        try:
            return await self._work()
        except PlatformError as error:
            return Ending(to=TaskStatus.FAILED, reason=str(error))
        except Exception:
            log.exception("task %s", self.task.id)
            return Ending(to=TaskStatus.FAILED, reason=OURS)
        finally:
            if self._preparing is not None:
                self._preparing.cancel()
                await asyncio.gather(self._preparing, return_exceptions=True)

    async def _open(self) -> tuple[Repository, list[int]]:
        task = await self._with_attempts()
        repository = await self._runner._find(task)
        preparing = self._preparing = asyncio.ensure_future(self._prepare(task, repository))  # while its sandbox starts
        chosen = next((one for one in task.attempts if one.chosen), None)
        numbers = [chosen.number] if chosen is not None else [one.number for one in task.attempts]
        await self._steps.open(numbers)
        self._attempts = [
            AttemptRun(
                AttemptRecord(self._parts, task, number, self._steps), repository=repository, preparing=preparing
            )
            for number in numbers
        ]
        return repository, numbers

    async def _work(self) -> Ending:
        if (ending := await self._is_hopeless()) is not None:
            return ending
        repository, numbers = await self._open()
        endings = await self._race(numbers)
        number, ending = await self._chosen(numbers, endings)
        return await self._publish(number, ending, repository)

    async def _is_hopeless(self) -> Ending | None:
        """What cannot be shown to be red needs no sandbox, unless a rule or a person wants it all the same."""
        task = await self._with_attempts()
        spec = task.spec.proof
        if spec is None or spec.problem is None or spec.unproven or task.pending or task.attempts[0].turn:
            return None
        words = f"not reproducible: {spec.problem}"
        found = Proof(outcome=ProofOutcome.NOT_REPRODUCIBLE, words=words)
        await self._state.update_attempt(task.id, 1, proof=found)
        return Ending(to=TaskStatus.NEEDS_YOU, reason=words, attempt=AttemptStatus.UNCHANGED)

    async def _prepare(self, task: Task, repository: Repository) -> Prepared:
        policy = PushPolicy(
            rewritable=tuple(result_ref(attempt.number) for attempt in task.attempts),
            max_bytes=self._policy.max_push_mb * MIB,
            protect=self._policy.protected,
        )
        git = self._parts.git
        if task.spec.proof is not None and task.base_sha is None:  # a commit that was just pushed has to be there
            await self._steps.retried(lambda: git.mirrors.refresh(repository, force=True))
        prepared = await self._steps.retried(lambda: git.prepare(task.id, repository, task.spec.base, policy))
        await git.allow(task.id, policy)
        if task.run == 1 and task.base_sha is None:
            await self._state.timeline.add(
                task.id, *(Entry(kind=EntryKind.GIT, text=note, data={"action": "note"}) for note in prepared.notes)
            )
        if task.base_sha != prepared.base_sha:
            await self._state.update(task.id, lambda _: {"base_sha": prepared.base_sha})
        return prepared

    async def _with_attempts(self) -> Task:
        """They are made when the task is first worked on."""

        def change(task: Task) -> dict[str, Any]:
            if task.attempts:
                return {}
            agents = task.spec.agents or (task.spec.agent,)
            made = [
                Attempt(number=number + 1, agent=agents[number % len(agents)], model=task.spec.model)
                for number in range(max(task.spec.attempts, len(agents)))
            ]
            return {"attempts": tuple(made)}

        return await self._state.update(self.task.id, change)

    async def _race(self, numbers: Sequence[int]) -> list[Ending]:
        if len(self._attempts) == 1:
            ending = await self._attempts[0].work()
            await self._noted(numbers[0], ending)
            return [ending]
        task = await self._state.get(self.task.id)
        if self._parts.boxes.can_share(task):
            await self._runner._forks.prepare(task, self._attempts[0], self._steps)
        return list(
            await asyncio.gather(*(self._entrant(n, one) for n, one in zip(numbers, self._attempts, strict=True)))
        )

    async def _entrant(self, number: int, attempt: AttemptRun) -> Ending:
        """One of several: what goes wrong with it does not end the others."""
        try:
            ending = await attempt.work()
        except PlatformError as error:
            ending = Ending(to=TaskStatus.FAILED, reason=str(error))
        except Exception:
            log.exception("task %s, attempt %d", self.task.id, number)
            ending = Ending(to=TaskStatus.FAILED, reason=OURS)
        await self._noted(number, ending)
        task = await self._state.get(self.task.id)
        await self._parts.boxes.pause(task, attempt_of(task, number))
        return ending

    async def _noted(self, number: int, ending: Ending) -> None:
        await self._state.update_attempt(
            self.task.id,
            number,
            status=ending.attempt,
            problem=ending.reason if ending.to is TaskStatus.FAILED else None,
        )

    async def _chosen(self, numbers: Sequence[int], endings: Sequence[Ending]) -> tuple[int, Ending]:
        task = await self._state.get(self.task.id)
        number = best_of([attempt_of(task, number) for number in numbers]).number
        if len(numbers) > 1:
            attempts = tuple(replace(one, chosen=one.number == number) for one in task.attempts)
            await self._state.update(task.id, lambda _: {"attempts": attempts})
        return number, endings[list(numbers).index(number)]

    async def _publish(self, number: int, ending: Ending, repository: Repository) -> Ending:
        task = await self._state.get(self.task.id)
        is_draft = ending.attempt is AttemptStatus.FAILING
        if ending.attempt is not AttemptStatus.READY and not (is_draft and task.spec.draft_on_failure):
            await self._steps.skip(number, "push", "pull_request")
            return ending
        if is_draft and await self._parts.git.head(task.id, number) is None:
            return ending
        publishing = self._runner._publishing
        if task.spec.proof is not None and task.spec.proof.pull is not None:
            attempt = attempt_of(task, number)
            if attempt.proof is not None and attempt.proof.outcome is ProofOutcome.FIXED:
                return await self._deliver(task, number, repository)
        await self._steps.do(number, "push", lambda: publishing.push(task, number, repository))
        has_one = await self._steps.do(
            number, "pull_request", lambda: publishing.pull_request(task, number, repository, draft=is_draft)
        )
        if is_draft:
            return ending
        if not has_one:
            where = f"its changes are on the branch {task.branch} of {repository.name}"
            return Ending(to=TaskStatus.DONE, reason=where, attempt=ending.attempt)
        return ending

    async def _deliver(self, task: Task, number: int, repository: Repository) -> Ending:
        """What was proven goes onto the branch of the pull request that was red."""
        spec, publishing = task.spec.proof, self._runner._publishing
        assert spec is not None and spec.pull is not None
        pull = spec.pull
        try:
            sha = await self._steps.do(number, "push", lambda: publishing.deliver(task, number, repository, spec))
        except HeadMoved as error:
            proof = replace(attempt_of(task, number).proof or moved(spec), outcome=ProofOutcome.MOVED, words=str(error))
            await self._state.update_attempt(task.id, number, proof=proof)
            return Ending(to=TaskStatus.CANCELLED, reason=str(error), attempt=AttemptStatus.READY)
        await self._steps.do(number, "pull_request", lambda: publishing.linked(task, repository, pull))
        words = f"fixed with {sha[:12]} on {spec.branch}, pull request {pull}"
        return Ending(to=TaskStatus.DONE, reason=words, attempt=AttemptStatus.READY)

    async def report(self, ending: Ending) -> None:
        """Tell the forge where it was asked for. What is said meanwhile queues the task again, and is reported then."""
        task = await self._state.get(self.task.id)
        if not task.spec.reports:
            return
        number = task.attempts[0].number if task.attempts else 1
        repository = await self._runner._find(task)
        try:
            await self._steps.do(
                number, "report", lambda: self._parts.reports.ended(task, repository, ending.to, ending.reason)
            )
        except PlatformError as error:
            log.warning("the end of task %s is not told at its forge: %s", task.id, error)

    async def stop(self) -> None:
        """End the agents; what cannot be reached is ended with its sandbox, later."""
        if not self._attempts:  # the wish is older than this process
            with contextlib.suppress(PlatformError):
                await self._open()
        for attempt in self._attempts:
            try:
                async with asyncio.timeout(STOP_S):
                    await attempt.interrupt()
            except (PlatformError, TimeoutError) as error:
                log.warning("an agent of task %s could not be interrupted: %s", self.task.id, error)

    async def let_go(self) -> None:
        with contextlib.suppress(PlatformError):
            await self._parts.boxes.let_go(await self._state.get(self.task.id))

    async def is_left(self) -> bool:
        """Whether the clean-up of this run was not done."""
        await self._steps.open(())
        return bool(self.task.attempts) and not any(
            self._steps.is_done(one.number, "cleanup") for one in self.task.attempts
        )

    async def keep_artifacts(self, task: Task) -> None:
        if task.spec.artifacts and task.chosen is not None:
            try:
                await self._runner._artifacts.keep(task, task.chosen)
            except PlatformError as error:
                log.warning("the artifacts of task %s could not be kept: %s", task.id, error)

    async def clean_up(self, task: Task) -> None:
        numbers = [attempt.number for attempt in task.attempts]
        number = task.chosen.number if task.chosen is not None else (numbers or [1])[0]

        async def act() -> None:
            for attempt in task.attempts:
                await self._parts.boxes.pause(task, attempt)
            await self._runner._forks.drop(task)

        try:
            await self._steps.do(number, "cleanup", act)
        except PlatformError as error:
            log.warning("the sandbox of task %s is cleaned up later: %s", task.id, error)
