"""What the model is going to say: scenes of turns, chosen by the conversation alone, so that retries and side questions do no harm."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tests.models.conversation import Asked, Call, Tool

SIDE_ANSWER = "ok"  # to requests that offer no tools: titles, summaries, checks of the connection
Made = TypeVar("Made")


class ScriptError(Exception):
    """The script and the conversation do not fit; the message says how."""


@dataclass(frozen=True)
class Failure:
    """The protocol's own error instead of an answer, the first `times` times that the turn is asked for."""

    status: int = 529
    times: int = 1
    retry_after_s: float | None = None
    message: str = "scripted failure"


@dataclass(frozen=True)
class Turn:
    """`calls` are `{"tool": name, "input": {...}}`; the name may be the end of the name that the agent offers.

    `expect` is a pattern that the results given to this turn must match. `capture` takes texts out of them by patterns with one group;
    `${name}` in later texts and inputs stands for such a text, `${result}` for all of the results.
    """

    say: str = ""
    think: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    expect: str | None = None
    capture: Mapping[str, str] = field(default_factory=dict)
    fail: Failure | None = None
    delay_s: float = 0.0
    cut: bool = False  # the connection breaks in the middle of a streamed answer
    input_tokens: int = 100
    output_tokens: int = 20


@dataclass(frozen=True)
class Scene:
    """`when` is a pattern for the prompt; `chat` also answers requests that offer no tools."""

    turns: tuple[Turn, ...]
    when: str = ""
    chat: bool = False


@dataclass(frozen=True)
class Script:
    scenes: tuple[Scene, ...]

    def scene(self, asked: Asked) -> Scene | None:
        for scene in self.scenes:
            if (asked.tools or scene.chat) and re.search(scene.when, asked.prompt, re.DOTALL):
                return scene
        return None


@dataclass(frozen=True)
class Answer:
    """A turn made ready: names resolved, texts filled in."""

    say: str = ""
    think: str = ""
    calls: tuple[tuple[Call, Tool], ...] = ()
    fail: Failure | None = None
    delay_s: float = 0.0
    cut: bool = False
    input_tokens: int = 100
    output_tokens: int = 20


def script(*turns: Mapping[str, Any] | str, **scene: Any) -> Script:
    """The usual script: one scene."""
    return parse({"scenes": [{"turns": list(turns), **scene}]})


def parse(raw: Any) -> Script:
    """From JSON: a list of turns, or `{"scenes": [{"when": ..., "turns": [...]}]}`. A turn that only speaks may be a string."""
    if isinstance(raw, Sequence) and not isinstance(raw, str):
        raw = {"scenes": [{"turns": raw}]}
    whole = _made(Script, raw)
    scenes = []
    for each in whole.scenes:
        scene = _made(Scene, each)
        scenes.append(Scene(tuple(_turn(turn) for turn in scene.turns), scene.when, scene.chat))
    return Script(tuple(scenes))


def load(path: Path) -> Script:
    return parse(json.loads(path.read_text()))


def dump(script: Script) -> str:
    """The JSON that `load` reads, for a model in another process."""
    return json.dumps(script, default=lambda part: {f.name: getattr(part, f.name) for f in fields(part)})


def answer(script: Script, asked: Asked) -> Answer:
    """What the model says to this; raises ScriptError when the conversation has left the script."""
    scene = script.scene(asked)
    if scene is None:
        if not asked.tools:
            return Answer(say=json.dumps(sample(asked.schema)) if asked.schema else SIDE_ANSWER)
        raise ScriptError(f"no scene fits the prompt {asked.prompt[-300:]!r}")
    if asked.turn >= len(scene.turns):
        raise ScriptError(f"turn {asked.turn + 1} was asked for, the scene has {len(scene.turns)}")
    turn = scene.turns[asked.turn]
    given = asked.results_before(asked.turn)
    if turn.expect is not None and not re.search(turn.expect, given, re.DOTALL):
        raise ScriptError(
            f"turn {asked.turn + 1} expects results like {turn.expect!r}, and was given {given[-2000:]!r}"
        )
    texts = {"result": given, **_captured(scene, asked)}
    return Answer(
        say=_filled(turn.say, texts),
        think=turn.think,
        calls=tuple(_call(wish, asked, texts, n) for n, wish in enumerate(turn.calls)),
        fail=turn.fail,
        delay_s=turn.delay_s,
        cut=turn.cut,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
    )


def sample(schema: Any) -> Any:
    """The smallest value that a JSON schema allows, for agents that want a decision in JSON."""
    if not isinstance(schema, Mapping):
        return {}
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return sample(schema[key][0])
    kind = schema.get("type", "object")
    kind = (kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: sample(properties.get(name)) for name in schema.get("required", properties)}
    if kind == "array":
        return [sample(schema.get("items"))] * int(schema.get("minItems", 0))
    least = schema.get("minimum", 1)  # numbers that count something rarely begin with 0
    plain: dict[str, Any] = {"string": SIDE_ANSWER, "integer": least, "number": least, "boolean": False, "null": None}
    return plain.get(kind)


def _turn(raw: Any) -> Turn:
    if isinstance(raw, Turn):
        return raw
    turn = _made(Turn, {"say": raw} if isinstance(raw, str) else raw)
    failure = turn.fail
    if isinstance(failure, Mapping):
        turn = _made(Turn, {**raw, "fail": _made(Failure, failure)})
    for wish in turn.calls:
        if not isinstance(wish, Mapping) or set(wish) - {"tool", "input"} or "tool" not in wish:
            raise ScriptError(f"a call is {{'tool': ..., 'input': ...}}, not {wish!r}")
    return turn


def _made(kind: type[Made], raw: Any) -> Made:
    if isinstance(raw, kind):
        return raw
    if not isinstance(raw, Mapping):
        raise ScriptError(f"a {kind.__name__.lower()} is an object, not {raw!r}")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := set(raw) - known:
        raise ScriptError(f"a {kind.__name__.lower()} has no {sorted(unknown)}; it has {sorted(known)}")
    try:
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()})
    except TypeError as error:
        raise ScriptError(f"{raw!r}: {error}") from error


def _captured(scene: Scene, asked: Asked) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, turn in enumerate(scene.turns[: asked.turn + 1]):
        for name, pattern in turn.capture.items():
            given = asked.results_before(number)
            found = re.search(pattern, given, re.DOTALL)
            if found is None:
                raise ScriptError(f"turn {number + 1} finds no {name} ({pattern!r}) in {given[-2000:]!r}")
            texts[name] = found.group(1)
    return texts


def _call(wish: Mapping[str, Any], asked: Asked, texts: Mapping[str, str], number: int) -> tuple[Call, Tool]:
    tool = _offered(str(wish["tool"]), asked.tools)
    identity = f"call_{asked.prompt_index}_{asked.turn}_{number}"
    return Call(identity, tool.name, _filled(wish.get("input", {}), texts)), tool


def _offered(name: str, tools: Sequence[Tool]) -> Tool:
    ends = (rf"^{re.escape(name)}$", rf"__{re.escape(name)}$", rf"[_.:/-]{re.escape(name)}$")
    matches = ([tool for tool in tools if re.search(end, tool.name)] for end in ends)
    found = next(filter(None, matches), [])
    if len(found) != 1:
        raise ScriptError(f"{len(found)} tools are called {name}; offered are {sorted(tool.name for tool in tools)}")
    return found[0]


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda found: texts.get(found.group(1), found.group(0)), value)
    if isinstance(value, Mapping):
        return {name: _filled(part, texts) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, texts) for part in value]
    return value
