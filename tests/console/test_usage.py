"""What was used: counted by day and user on SQLite and PostgreSQL, shown to each their own, and as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.console.browsers import logged_in
from tests.databases import KINDS, nothing_in
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.test_store import session
from tests.platform.world import ADMIN, Served, until

from sandlot.platform.console.metering import MeterStores, UsageMeter, by_day
from sandlot.platform.core.console import PastSandbox, SeenSandbox
from sandlot.platform.core.model import SessionStatus
from sandlot.platform.core.models import BudgetScope, ModelCall, ModelClient, ModelTokens
from sandlot.platform.core.tasks import Attempt, Task, TaskSpec, TaskStatus, TokenUsage
from sandlot.platform.core.usage import UsageAmount, UsageKey
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.store import Database, SqlModelCalls, SqlSessions, SqlTasks, SqlUsage

NOON = datetime(2030, 5, 1, 23, 50, tzinfo=UTC)


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with nothing_in(Database, request, tmp_path) as found:
        await found.migrate()
        yield found


@dataclass
class Told:
    """An inspection that says what the test wants it to."""

    running: list[SeenSandbox] = field(default_factory=list)
    over: list[PastSandbox] = field(default_factory=list)

    async def sandboxes(self) -> Sequence[SeenSandbox]:
        return self.running

    async def ended(self, since: datetime | None, limit: int) -> Sequence[PastSandbox]:
        return self.over

    async def life(self, sandbox_id: str) -> None:
        return None


class TellingProvider(ScriptedProvider):
    def __init__(self, told: Told) -> None:
        super().__init__("p")
        self.inspection = told


def running(id: str, started_at: datetime, **changes: Any) -> SeenSandbox:
    sandbox = SeenSandbox(
        id=id,
        template_id="t",
        template=None,
        is_paused=False,
        started_at=started_at,
        ends_at=started_at,
        cpu_count=2,
        memory_mb=512,
        disk_mb=1,
    )
    return replace(sandbox, **changes)


def over(id: str, started_at: datetime, ended_at: datetime) -> PastSandbox:
    return PastSandbox(
        id=id,
        template="t",
        state="ended",
        created_at=started_at,
        started_at=started_at,
        ended_at=ended_at,
        end_reason="killed",
        source=None,
        cpu_count=2,
        memory_mb=512,
    )


def task(**changes: Any) -> Task:
    spec = TaskSpec(repository="shop", prompt="p", title="t", agent="claude")
    used = TokenUsage(input=100, output=20, cached=5, cost_usd=0.5)
    attempt = Attempt(number=1, agent="codex", session="sbx_s", usage=used)
    made = Task(id="t1", user_id="ada", status=TaskStatus.DONE, spec=spec, created_at=NOON, attempts=(attempt,))
    return replace(made, **changes)


async def test_hours_are_counted_once_by_day_user_repository_and_agent(database: Database) -> None:
    told, now = Told(), [NOON]
    usage, sessions, tasks = SqlUsage(database), SqlSessions(database), SqlTasks(database)
    providers = ProviderRegistry({"p": TellingProvider(told)}, lambda: now[0])
    stores = MeterStores(usage=usage, sessions=sessions, tasks=tasks)
    meter = UsageMeter(stores=stores, providers=providers, default="p", clock=lambda: now[0])
    await sessions.add(session(status=SessionStatus.RUNNING, provider_sandbox_id="i1"))
    await tasks.add(task())

    async def totals() -> dict[UsageKey, UsageAmount]:
        return dict(await usage.totals("2030-05-01", "2030-05-02", None))

    told.running = [running("i1", NOON - timedelta(minutes=1)), running("i2", NOON, is_paused=True)]
    await meter.count("p")
    ada = UsageKey(day="2030-05-01", user_id="ada", repository="shop", agent="codex")
    assert (await totals())[ada] == UsageAmount(seconds=60, cpu_s=120, memory_gib_s=30, starts=1)
    assert (await totals())[UsageKey(day="2030-05-01")] == UsageAmount(starts=1), "nobody's, and paused"
    now[0] += timedelta(minutes=5)
    told.running[1] = running("i2", NOON)
    await meter.count("p")
    now[0] += timedelta(minutes=6)
    told.running = [told.running[1]]
    told.over = [over("i1", NOON - timedelta(minutes=1), NOON + timedelta(minutes=6))]
    told.over.append(over("i3", NOON + timedelta(minutes=9), NOON + timedelta(minutes=11)))
    await meter.count("p")
    before = await totals()
    assert before[ada].seconds == 7 * 60 and before[ada].starts == 1, "to its end, not to the look after it"
    nobody = [before[UsageKey(day=day)] for day in ("2030-05-01", "2030-05-02")]
    assert [one.seconds for one in nobody] == [11 * 60 - 60 + 60, 120], "each day has its own part"
    assert sum(one.starts for one in nobody) == 2, "also of one that nobody saw running"
    told.running = []
    await meter.count("p")
    assert await totals() == before, "what has ended is counted once"
    now[0] += timedelta(hours=5)
    told.running, told.over = [running("i2", NOON)], []
    await meter.count("p")
    assert (await totals())[UsageKey(day="2030-05-02")].seconds == 120 + 600, "an outage is not counted in full"


def test_a_time_over_midnight_is_two() -> None:
    parts = list(by_day(NOON, NOON + timedelta(days=1)))
    assert [stop - start for start, stop in parts] == [timedelta(minutes=10), timedelta(hours=23, minutes=50)]
    assert list(by_day(NOON, NOON)) == []


async def test_users_see_theirs_admins_all_and_spreadsheets_no_formulas(quick: Served) -> None:
    database = Database.sqlite(quick.place / "platform.db")
    key = UsageKey(day="2030-05-01", user_id="ada", repository="=cmd|x", agent="codex")
    amounts = {key: UsageAmount(seconds=3600, cpu_s=7200, memory_gib_s=1800, starts=3)}
    amounts[replace(key, user_id="bob")] = UsageAmount(seconds=1800, starts=1)
    await SqlUsage(database).charge("p", amounts, {"i1": NOON})
    await SqlTasks(database).add(task())
    for scope, cost in ((BudgetScope.SESSION, 250_000_000), (BudgetScope.TASK, 500_000_000)):
        client = ModelClient(user_id="ada", scope=scope, id="x", agent="codex")
        call = ModelCall(
            at=NOON,
            client=client,
            endpoint="anthropic",
            model="m",
            status=200,
            tokens=ModelTokens(input=10, output=2),
            cost_nano=cost,
        )
        await SqlModelCalls(database).add(call, (), ())
    await database.close()
    path = "/console/api/usage?start=2030-05-01&end=2030-05-31"
    async with logged_in(quick.url, await quick.key("ada")) as ada, logged_in(quick.url, ADMIN) as admin:
        mine = (await ada.get(path)).json()
        assert [row["day"] for row in mine["rows"]] == ["2030-05-01"]
        total = mine["total"]
        assert (total["vcpu_hours"], total["memory_gib_hours"], total["starts"]) == (2, 0.5, 3)
        assert (total["tokens_input"], total["tokens_output"], total["cost_usd"], total["tasks"]) == (
            110,
            22,
            0.75,
            1,
        ), "what a session spent counts, too; what a task spent counts once"
        both = (await admin.get(f"{path}&by=user_id")).json()
        assert [(row["user_id"], row["hours"]) for row in both["rows"]] == [("ada", 1), ("bob", 0.5)]
        answer = await admin.get(path.replace("usage", "usage.csv"))
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert {row["repository"] for row in rows} == {"'=cmd|x", "shop", ""} and rows[0]["day"] == "2030-05-01"
        for wrong in ("by=salary", "start=2030-06-01", "start=x", "start=2020-01-01"):
            assert (await ada.get(f"/console/api/usage?end=2030-05-31&{wrong}")).status_code == 400, wrong


async def test_a_real_sandbox_shows_up_in_the_usage(engine: Server) -> None:
    async with logged_in(f"http://127.0.0.1:{engine.port}", engine.key) as admin:

        async def starts() -> int:
            return int((await admin.get("/console/api/usage")).json()["total"]["starts"])

        before = await starts()
        engine.create().kill()

        async def counted() -> bool:
            return await starts() > before

        await until(counted, what="the start of a sandbox that ended at once")
