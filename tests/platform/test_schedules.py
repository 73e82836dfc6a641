"""Cron's five fields: which minutes count, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sandlot.platform.core.schedules import parse_schedule

MONDAY = datetime(2026, 11, 16, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at", "counts"),
    [
        ("30 3 * * *", MONDAY, True),
        ("30 3 * * *", MONDAY.replace(minute=31), False),
        ("*/15 * * * *", MONDAY, True),
        ("5/25 * * * *", MONDAY, True),
        ("0-29,31-59 * * * *", MONDAY, False),
        ("30 3 * nov mon-fri", MONDAY, True),
        ("30 3 * * 7", MONDAY - timedelta(days=1), True),
        ("30 3 * * 0", MONDAY, False),
        ("30 3 1 * mon", MONDAY, True),  # one of the two kinds of days is enough
        ("30 3 1 * *", MONDAY, False),
        ("30 3 16 * sun", MONDAY, True),
        ("@hourly", MONDAY.replace(minute=0), True),
        ("@weekly", MONDAY, False),
        ("30 3 * * *", MONDAY.astimezone(timezone(timedelta(hours=5))), True),
    ],
)
def test_minutes_that_count(text: str, at: datetime, counts: bool) -> None:
    assert parse_schedule(text).matches(at) is counts


WRONG = """
* * * *
60 * * * *
* 24 * * *
* * 0 * *
* * * 13 *
* * * * 8
*/0 * * * *
5-1 * * * *
a * * * *
1- * * * *
, * * * *
*/x * * * *
٣ * * * *
@never
1-2-3 * * * *
99999999999 * * * *
"""


@pytest.mark.parametrize("text", ["", *WRONG.strip().splitlines()])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"five fields|is no"):
        parse_schedule(text)


def test_the_newest_minute_that_counts_is_found_once() -> None:
    schedule = parse_schedule("0 * * * *")
    assert schedule.last(MONDAY, MONDAY - timedelta(hours=1)) == MONDAY.replace(minute=0)
    assert schedule.last(MONDAY, MONDAY.replace(minute=0)) is None
