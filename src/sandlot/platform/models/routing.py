"""Chooses the endpoints that serve a model: allow lists, aliases, fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sandlot.platform.core.models import ModelApi, ModelEndpoint


@dataclass(frozen=True, slots=True)
class Candidate:
    endpoint: ModelEndpoint
    model: str  # as the endpoint calls it


class ModelRouter:
    def __init__(self, endpoints: Sequence[ModelEndpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._named = {endpoint.name: endpoint for endpoint in endpoints}

    @property
    def endpoints(self) -> Sequence[ModelEndpoint]:
        return self._endpoints

    def named(self, name: str) -> ModelEndpoint | None:
        return self._named.get(name)

    def candidates(self, api: ModelApi, model: str, only: str | None = None) -> Sequence[Candidate]:
        """In the order in which they are asked. `only` is the endpoint that a caller named."""
        pool = [e for e in self._endpoints if e.api is api and only in (None, e.name)]
        first = next((c for e in pool if (c := _serves(e, model)) is not None), None)
        if first is None:
            return ()
        spare = [self._named[name] for name in first.endpoint.fallbacks if name in self._named]
        others = [c for e in spare if e.api is api and (c := _serves(e, model)) is not None]
        return (first, *others)

    def of(self, api: ModelApi, only: str | None = None) -> ModelEndpoint | None:
        """The first endpoint of a protocol, for requests that name no model."""
        return next((e for e in self._endpoints if e.api is api and only in (None, e.name)), None)

    def allowed(self, api: ModelApi) -> Sequence[str]:
        """Patterns and aliases, for a message that tells what there is."""
        found = [e for e in self._endpoints if e.api is api]
        return sorted({name for e in found for name in (*e.models, *e.aliases)})


def _serves(endpoint: ModelEndpoint, model: str) -> Candidate | None:
    if model in endpoint.aliases:
        return Candidate(endpoint, endpoint.aliases[model])
    return Candidate(endpoint, model) if is_allowed(endpoint, model) else None


def is_allowed(endpoint: ModelEndpoint, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in endpoint.models)
