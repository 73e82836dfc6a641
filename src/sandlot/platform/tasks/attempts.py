"""One attempt at a task: its sandbox, the checkout, the agent's turns, the checks, and the commit that it comes to."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from sandlot.platform.core.errors import Conflict, SandboxGone, Unavailable
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.model import Session
from sandlot.platform.core.tasks import Attempt, AttemptStatus, EntryKind, Task, TaskStatus
from sandlot.platform.git.records import Prepared
from sandlot.platform.tasks import prompts
from sandlot.platform.tasks.attempt_record import AFTER_AGENT, Again, AttemptRecord, Ending, Ends
from sandlot.platform.tasks.boxes import TaskBox
from sandlot.platform.tasks.checkout import SETUP, Checkout, person_of
from sandlot.platform.tasks.handing_in import HandingIn
from sandlot.platform.tasks.proving import Proving
from sandlot.platform.tasks.turns import AgentTurns, TurnPlace, attempt_of, hidden_values

log = logging.getLogger(__name__)
MAX_LOSSES = 3
AFTER_SANDBOX = ("clone", "branch", "setup")


class AttemptRun:
    """An attempt in one run. Made anew by each process; everything that matters is in the records."""

    def __init__(self, record: AttemptRecord, *, repository: Repository, preparing: asyncio.Future[Prepared]) -> None:
        """`preparing` makes the task's repository on the git server."""
        self._record, self._parts = record, record.parts
        self._repository, self._preparing = repository, preparing
        self._is_new = False  # nothing is in its sandbox yet
        self._unreached = 0  # how often in a row its sandbox was there, but not for us

    async def _ready(self, session: Session) -> Session:
        """The repository is there, too."""
        self._prepared = await asyncio.shield(self._preparing)
        reports = self._record.parts.reports
        self._proving = Proving(self._record, repository=self._repository, prepared=self._prepared, reports=reports)
        self._handing_in = HandingIn(self._record, self._repository, self._prepared, self._proving)
        return session

    async def work(self) -> Ending:
        """To its end: a commit that was handed in, or the reason why there is none. A sandbox that is lost is replaced."""
        while True:
            try:
                return await self._in_sandbox()
            except SandboxGone as error:
                await self._lost(error)

    async def prepare(self) -> str:
        """As far as the agent, and not further: for others to begin with a copy of its sandbox. Returns its session."""
        session = await self._ready(await self._record.do("sandbox", self._start))
        task, _ = await self._record.now()
        async with self._parts.boxes.held(task, session) as box:
            await self._prepare(self._place(task, box), self._checkout(task, box))
        return session.id

    async def interrupt(self) -> None:
        """End the agent in its sandbox, if it runs."""
        task, attempt = await self._record.now()
        box = await self._parts.boxes.reach(task, attempt)
        if box is not None and not attempt.turn_ended:
            self._prepared = await asyncio.shield(self._preparing)
            await AgentTurns(self._parts.state, self._place(task, box)).interrupt()

    async def _in_sandbox(self) -> Ending:
        record = self._record
        session = await self._ready(await record.do("sandbox", self._start))
        task, _ = await record.now()
        async with self._parts.boxes.held(task, session) as box:
            has_saved = await self._parts.git.head(task.id, self._record.number) is not None
            place, checkout = self._place(task, box), self._checkout(task, box, has_saved)
            try:
                await self._prepare(place, checkout)
            except Conflict as error:
                if not record.steps.is_failed(record.number, "setup"):
                    raise
                return Ending(to=TaskStatus.NEEDS_YOU, reason=f"{error}; mend the script or the sandbox, then retry it")
            turns = AgentTurns(self._parts.state, place)
            while True:
                try:
                    await self._work_once(place, turns, checkout)
                    return Ending(to=TaskStatus.REVIEW, reason=None, attempt=AttemptStatus.READY)
                except Again:
                    continue
                except Ends as ends:
                    return ends.ending

    async def _start(self) -> Session:
        task, attempt = await self._record.now()
        session = await self._parts.boxes.start(task, attempt)
        is_new = self._is_new = attempt.session != session.id
        if is_new:
            if attempt.session is not None:  # it was replaced: nothing is in it
                await self._record.steps.reset(self._record.number, *AFTER_SANDBOX)
            await self._record.change(session=session.id, status=AttemptStatus.WORKING)
        elif attempt.status is not AttemptStatus.WORKING:
            await self._record.change(status=AttemptStatus.WORKING)
        await asyncio.gather(
            self._parts.boxes.connect(task, attempt, session, is_new=is_new), self._note_isolation(task, session)
        )
        return session

    async def _note_isolation(self, task: Task, session: Session) -> None:
        if task.isolation is None and (found := await self._parts.boxes.isolation(session)) is not None:
            await self._parts.state.update(task.id, lambda _: {"isolation": found}, quiet=True)

    async def _lost(self, error: SandboxGone) -> None:
        """Begin again in another sandbox, with what was handed in; not for ever."""
        record = self._record
        _, attempt = await record.now()
        if attempt.session is not None and not await self._parts.boxes.is_lost(attempt.session):
            log.info("the sandbox of task %s was not reached: %s", record.task_id, error)
            await self._parts.boxes.disconnect(attempt.session)
            if self._unreached >= MAX_LOSSES:
                raise Unavailable(f"its sandbox is not reached: {error}")
            self._unreached += 1
            return
        losses, told = attempt.losses + 1, f"its sandbox was lost: {error}"
        await record.tell(EntryKind.ERROR, told)
        await record.change(
            losses=losses,
            session=None,
            agent_session=None,
            turn_ended=True,
            problem=told if attempt.turn and not attempt.turn_ended else attempt.problem,
            usage=attempt.usage.plus(attempt.turn_usage),
        )
        if attempt.session is not None:
            await self._parts.boxes.disconnect(attempt.session)
        if losses > MAX_LOSSES:
            raise Unavailable(f"its sandbox was lost {losses} times; look at the provider, then retry it")
        await record.steps.reset(record.number, *AFTER_SANDBOX, "agent", *AFTER_AGENT)

    async def _prepare(self, place: TurnPlace, checkout: Checkout) -> None:
        if not self._record.is_done("clone"):
            await self._record.do("clone", lambda: self._clone(checkout))
        if not self._record.is_done("branch"):
            await self._record.do("branch", checkout.branch)
        if not self._record.is_done("setup"):
            await self._record.do("setup", lambda: self._set_up(place, checkout))

    async def _clone(self, checkout: Checkout) -> None:
        prepared, packs = self._prepared, self._parts.git.base_packs
        is_there = not self._is_new and await checkout.is_there()
        await checkout.clone(None if is_there else await packs.get(self._repository, prepared.base, prepared.base_sha))

    async def _set_up(self, place: TurnPlace, checkout: Checkout) -> None:
        """Run the repository's own script, if it has one."""
        if checkout.has_setup is False:
            return
        if not checkout.has_setup and not (await place.box.run(f"test -f {SETUP}", cwd=place.directory)).is_ok:
            return
        command = f"sh {SETUP}"
        result = await self._parts.checks.one(place, command, f"setup-{self._record.run}", 1)
        said = {"command": command, "output": result.output, "exit_code": result.exit_code, "running": False}
        await self._record.tell(EntryKind.COMMAND, command, **said)
        if result.exit_code != 0:
            raise Conflict(
                f"{SETUP} of the repository ended with exit code {result.exit_code}: {result.output[-500:].strip()}"
            )

    async def _work_once(self, place: TurnPlace, turns: AgentTurns, checkout: Checkout) -> None:
        record = self._record
        task, _ = await record.now()
        if task.spec.proof is not None and not record.is_done("reproduce"):
            await self._reproduce(place)
        await self._until_answered(turns, checkout)
        if not record.is_done("checks"):
            await self._check(place, turns, "checks")
        if task.spec.proof is not None and not record.is_done("prove"):
            await self._proving.prove(place, turns)
        if not record.is_done("commit"):
            try:
                await record.do("commit", lambda: self._handing_in.commit(turns, checkout))
            except Ends as ends:
                if ends.ending.attempt is AttemptStatus.UNCHANGED:
                    await record.steps.skip(record.number, "commit", "push", "pull_request")
                else:
                    await record.steps.fail(record.number, "commit", ends.ending.reason or "")
                raise
            if not record.is_done("checks"):
                await self._check(place, turns, "rebased")

    async def _reproduce(self, place: TurnPlace) -> None:
        record = self._record
        try:
            await record.do("reproduce", lambda: self._proving.reproduce(place))
        except Ends as ends:
            await record.steps.fail(record.number, "reproduce", ends.ending.reason or "")
            await record.steps.skip(record.number, "agent", *AFTER_AGENT)
            raise

    async def _until_answered(self, turns: AgentTurns, checkout: Checkout) -> None:
        """Turns of the agent, until none is running and nobody has anything left to say to it."""
        record = self._record
        while True:
            _, attempt = await record.now()
            if attempt.turn_ended:
                if not await self._begin_next(turns, attempt, checkout):
                    if not record.is_done("agent"):  # its turn ended in an earlier process or run
                        await record.do("agent", lambda: self._handing_in.save(checkout))
                    return
                await record.steps.reset(record.number, "agent", *AFTER_AGENT)
            limit = await record.do("agent", lambda: self._finish_turn(turns, checkout))
            task, attempt = await record.now()
            if limit is not None:
                await record.steps.fail(record.number, "agent", limit)
                raise Ends(TaskStatus.NEEDS_YOU, limit)
            if task.pending and record.takes_messages(task):
                continue
            if attempt.question is not None:
                raise Ends(TaskStatus.NEEDS_YOU, attempt.question)
            if attempt.problem is not None:
                await record.steps.fail(record.number, "agent", attempt.problem)
                if (spent := await self._parts.models.problem(task)) is not None:
                    raise Ends(TaskStatus.NEEDS_YOU, spent)
                raise Ends(TaskStatus.FAILED, f"{record.agent.title}: {attempt.problem}")

    async def _finish_turn(self, turns: AgentTurns, checkout: Checkout) -> str | None:
        _, attempt = await self._record.now()
        limit = None if attempt.turn_ended else await turns.finish()
        await self._handing_in.save(checkout)
        return limit

    async def _begin_next(self, turns: AgentTurns, attempt: Attempt, checkout: Checkout) -> bool:
        """Begin the turn that is due, if one is."""
        record = self._record
        task, _ = await record.now()
        has_model = record.agent.model is not None
        first = prompts.first_prompt(task, base=self._prepared.base, notes=self._prepared.notes, is_briefed=has_model)
        if has_model and attempt.proof is not None and attempt.proof.targets:
            first += "\n" + prompts.reproduced_prompt([run for run in attempt.proof.before if not run.is_green])
        if attempt.turn == 0:
            await turns.begin(record.told(first), None)
            return True
        if attempt.problem is not None or attempt.question is not None or task.pending:
            await record.may_go_on()
            await self._handing_in.catch_up(checkout)
        if task.pending and record.takes_messages(task):
            # A new conversation knows nothing of the task.
            await turns.begin(record.told("" if attempt.agent_session or not has_model else first), None)
        elif attempt.problem is not None or attempt.question is not None:
            again = prompts.GO_ON if attempt.agent_session is not None else prompts.again_prompt(first)
            await turns.begin(record.told(again if has_model else task.spec.prompt), "continue")
        else:
            return False
        return True

    async def _check(self, place: TurnPlace, turns: AgentTurns, phase: str) -> None:
        """Raises `Again` when the agent has to fix something, `Ends` when it may not try any more."""
        record = self._record
        task, attempt = await record.now()
        if not task.spec.checks:
            await record.steps.skip(record.number, "checks")
            return
        series = f"{phase}-{record.run}-{attempt.turn}"

        async def run() -> None:
            await record.change(checks=await self._parts.checks.run(place, task.spec.checks, series))

        await record.do("checks", run)
        _, attempt = await record.now()
        failed = [check for check in attempt.checks if check.exit_code != 0]
        if not failed:
            return
        words = ", ".join(repr(check.command.splitlines()[0][:80]) for check in failed)
        await record.steps.fail(record.number, "checks", f"{len(failed)} of {len(attempt.checks)} fail: {words}")
        reason = f"its checks fail: {words}; look at their output, then send it a message or retry it"
        await record.failed_once_more(turns, prompts.checks_prompt(failed), "checks", reason)

    def _place(self, task: Task, box: TaskBox) -> TurnPlace:
        secrets = self._parts.boxes.secrets(task)
        chosen = attempt_of(task, self._record.number).model or task.spec.model
        return TurnPlace(
            task=task.id,
            number=self._record.number,
            agent=self._record.agent,
            box=box,
            directory=self._checkout(task, box).directory,
            deadline=(task.started_at or task.created_at) + timedelta(seconds=task.spec.limits.seconds),
            environment=secrets,
            hidden=hidden_values(
                {
                    **secrets,
                    "task-credential": self._prepared.credential,
                    "board-credential": self._parts.board.credential(task.id),
                }
            ),
            found=self._parts.board.environment(task),
            pointed=self._parts.models.pointed(task, self._record.agent, chosen),
            prices=self._parts.models.prices,
        )

    def _checkout(self, task: Task, box: TaskBox, has_saved: bool = True) -> Checkout:
        return Checkout(
            box,
            repository=self._repository.name,
            prepared=self._prepared,
            attempt=self._record.number,
            person=person_of(task.user_id),
            has_saved=has_saved,
        )
