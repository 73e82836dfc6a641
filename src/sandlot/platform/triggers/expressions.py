"""Expressions of GitHub's workflows, as far as they only look something up: anything else cannot be known here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any

MAX_TEXT = 64_000
MAX_COMBINATIONS = 256
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"\s*([A-Za-z_][\w-]*)((?:\.[A-Za-z_][\w-]*)+)\s*")
_SECRET = re.compile(r"\bsecrets\b")
Values = Mapping[str, Mapping[str, Any]]


class NotReproducible(Exception):
    """The words say what of the workflow cannot be done in a sandbox."""


def rendered(value: Any) -> str:
    """As GitHub writes a value into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise NotReproducible("a value that is a list or a record is written into a text")


def filled(text: Any, values: Values) -> str:
    """The text with its expressions looked up. Raises `NotReproducible` for those that need more than that."""

    def one(found: re.Match[str]) -> str:
        inside = found[1]
        if _SECRET.search(inside):
            raise NotReproducible(f"it uses a secret ({inside.strip()[:80]}), and secrets never enter a sandbox")
        path = _PATH.fullmatch(inside)
        if path is None or path[1] not in values:
            raise NotReproducible(f"the expression {inside.strip()[:80]!r} is only known at GitHub")
        value: Any = values[path[1]]
        for step in path[2].split(".")[1:]:
            if not isinstance(value, Mapping) or (step not in value and path[1] == "github"):
                raise NotReproducible(f"the expression {inside.strip()[:80]!r} is only known at GitHub")
            value = value.get(step)
        return rendered(value)

    plain = rendered(text)
    if len(plain) > MAX_TEXT:
        raise NotReproducible("a text of the workflow is too long")
    return _EXPRESSION.sub(one, plain)


def has_expression(text: Any) -> bool:
    return isinstance(text, str) and "${{" in text


def combinations(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The values of the job's matrix, one record for each job that comes of it. Raises `NotReproducible`."""
    strategy = job.get("strategy")
    matrix = strategy.get("matrix") if isinstance(strategy, Mapping) else None
    if matrix is None:
        return [{}]
    if not isinstance(matrix, Mapping) or any(map(has_expression, matrix.values())):
        raise NotReproducible("its matrix is computed at GitHub")
    axes = {str(name): each for name, each in matrix.items() if name not in ("include", "exclude")}
    if any(not isinstance(each, list) for each in axes.values()):
        raise NotReproducible("its matrix is computed at GitHub")
    found = list(islice(_crossed(axes), MAX_COMBINATIONS)) if axes else []
    for left_out in _records(matrix.get("exclude")):
        found = [each for each in found if any(each.get(name) != value for name, value in left_out.items())]
    crossed = list(found)
    for more in _records(matrix.get("include")):
        same = [each for each in crossed if all(each.get(name) == more[name] for name in axes if name in more)]
        for each in same:
            each.update(more)
        if not same:
            found.append(dict(more))
    return found[:MAX_COMBINATIONS] or [{}]


def _crossed(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _records(given: Any) -> list[Mapping[str, Any]]:
    return [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
