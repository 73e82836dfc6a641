"""What carries over from one step of a build to the next: user, directory, variables, and the chain of layers."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandlot.engine.core.errors import StepFailed
from sandlot.engine.core.model import LayerResult

FORMAT = 1  # raise it when the same step gives something else than before
MOST_LAYERS = 60  # the kernel reads a page of mount options
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    layers: tuple[str, ...]
    key: str  # of everything that led here
    user: str = "user"
    home: str = "/home/user"
    workdir: str | None = None  # None: the user's home directory
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> str:
        return self.workdir or self.home

    def after(self, key: str, result: LayerResult) -> Context:
        layers = (*self.layers, result.layer) if result.layer is not None else self.layers
        return replace(self, key=key, layers=layers)

    def with_variables(self, args: Sequence[str]) -> Context:
        """ENV: names and values in turn; a value may use variables that are set by now."""
        if not args or len(args) % 2:
            raise StepFailed("ENV requires both a key and value arguments")
        env = dict(self.env)
        known = {"PATH": SEARCH_PATH, "HOME": self.home, "USER": self.user}
        for name, value in zip(args[::2], args[1::2], strict=True):
            if not name or "=" in name or "\0" in name + value:
                raise StepFailed(f"ENV: {name[:80]!r} cannot be the name of a variable")
            env[name] = expand(value, {**known, **env})
        return replace(self, env=env, key=chained(self.key, "ENV", sorted(env.items())))

    def path(self, text: str) -> str:
        """A path of a step, from where the step stands."""
        expanded = expand(text, {"HOME": self.home, **self.env})
        if expanded == "~" or expanded.startswith("~/"):
            expanded = self.home + expanded[1:]
        return posixpath.normpath(posixpath.join(self.directory, expanded))


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $NAME, ${NAME} and ${NAME:-other}; nothing is ever executed."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        return values.get(match[2] or match[3]) or match[4] or ""

    return _VARIABLE.sub(value, text)


def chained(parent: str, *parts: object) -> str:
    return hashlib.sha256(json.dumps([FORMAT, parent, *parts]).encode()).hexdigest()
