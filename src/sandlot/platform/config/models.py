"""The parts of the configuration file about models: endpoints, prices, budgets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandlot.platform.core.models import BudgetCap, ModelApi, ModelPrice

# Endpoints that need no configuration but a key in the server's environment: name, protocol, address, variables.
WELL_KNOWN: tuple[tuple[str, ModelApi, str, tuple[str, ...]], ...] = (
    ("anthropic", ModelApi.ANTHROPIC, "https://api.anthropic.com", ("ANTHROPIC_API_KEY",)),
    ("openai", ModelApi.OPENAI, "https://api.openai.com", ("OPENAI_API_KEY",)),
    ("gemini", ModelApi.GEMINI, "https://generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
)
ADDRESSES = {api: url for _, api, url, _ in WELL_KNOWN}
WELL_KNOWN_VARIABLES = frozenset(name for *_, names in WELL_KNOWN for name in names)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelsTable(_Table):
    """An endpoint that serves models."""

    api: ModelApi
    url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")] | None = None
    key_env: str | None = None
    key_file: Path | None = None
    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    aliases: Mapping[str, str] = {}
    fallbacks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_key(self) -> ModelsTable:
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("the key is either in key_env or in key_file, not in both")
        return self


Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceTable(_Table):
    """In dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    cache_write: Dollars | None = None

    def price(self) -> ModelPrice:
        return ModelPrice(input=self.input, output=self.output, cached=self.cached, cache_write=self.cache_write)


class CapTable(_Table):
    cost_usd: Dollars | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None

    def cap(self) -> BudgetCap:
        return BudgetCap(cost_usd=self.cost_usd, tokens=self.tokens)


class BudgetsTable(_Table):
    """`session` is for the whole life of one; the others are for a month."""

    session: CapTable = CapTable()
    user: CapTable = CapTable()
    users: Mapping[str, CapTable] = {}
    everybody: CapTable = CapTable()
