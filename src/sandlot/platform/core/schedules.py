"""The five fields of cron, in UTC: which minutes count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...], int], ...] = (
    ("minute", 0, 59, (), 0),
    ("hour", 0, 23, (), 0),
    ("day of the month", 1, 31, (), 0),
    ("month", 1, 12, MONTHS, 1),
    ("day of the week", 0, 7, DAYS, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Minutes that count. As in cron: if both kinds of days are restricted, one of them is enough."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def matches(self, at: datetime) -> bool:
        at = at.astimezone(UTC)
        if at.minute not in self.minutes or at.hour not in self.hours or at.month not in self.months:
            return False
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return (day or weekday) if not self.any_day and not self.any_weekday else (day and weekday)

    def last(self, now: datetime, since: datetime) -> datetime | None:
        """The newest minute that counts, after `since` and not after `now`."""
        at = now.astimezone(UTC).replace(second=0, microsecond=0)
        while at > since:
            if self.matches(at):
                return at
            at -= timedelta(minutes=1)
        return None


def parse_schedule(text: str) -> Schedule:
    """Raises `ValueError`, saying which field is wrong."""
    fields = SHORT.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise ValueError("a schedule has five fields: minute, hour, day of the month, month, day of the week")
    sets = [_field(field.lower(), *known) for field, known in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = sets
    return Schedule(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=fields[2].startswith("*"),
        any_weekday=fields[4].startswith("*"),
    )


def _field(text: str, what: str, low: int, high: int, names: tuple[str, ...], first: int) -> frozenset[int]:
    def number(word: str) -> int:
        if word in names:
            return names.index(word) + first
        if not word.isascii() or not word.isdecimal() or not low <= int(word[:4]) <= high:
            raise ValueError(f"{word[:20]!r} is no {what}: it is a number from {low} to {high}")
        return int(word)

    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        every = int(step) if step.isascii() and step.isdecimal() and len(step) < 4 else 0
        if slash and every < 1:
            raise ValueError(f"{part[:20]!r} is no {what}: what follows the slash is a number from 1")
        begin, dash, end = span.partition("-")
        if span == "*":
            start, stop = low, high
        else:
            start = number(begin)
            stop = number(end) if dash else high if slash else start
        if start > stop:
            raise ValueError(f"{part[:20]!r} is no {what}: its end is before its beginning")
        found.update(range(start, stop + 1, every or 1))
    return frozenset(found)
