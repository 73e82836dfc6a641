"""What models cost: list prices by the model's name, for agents that tell tokens and no money."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandlot.data_files import data_files
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.tasks import TokenUsage

Dollars = Annotated[float, Field(ge=0, le=100_000)]


class ModelPrice(BaseModel):
    """US dollars for a million tokens. `cached` is for input that came from the cache."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Dollars
    output: Dollars
    cached: Dollars | None = None

    def cost(self, usage: TokenUsage) -> float:
        cached = min(usage.cached, usage.input)
        read = self.cached if self.cached is not None else self.input
        dollars = (usage.input - cached) * self.input + cached * read + usage.output * self.output
        return round(dollars / 1_000_000, 6)


@dataclass(frozen=True, slots=True)
class Prices:
    """By the beginning of a model's name; the longest that fits counts. A provider's name before it is left out."""

    models: Mapping[str, ModelPrice]

    def of(self, model: str) -> ModelPrice | None:
        name = model.rpartition("/")[2].lower()
        fitting = [start for start in self.models if name.startswith(start)]
        return self.models[max(fitting, key=len)] if fitting else None

    def cost(self, model: str, usage: TokenUsage) -> float | None:
        price = self.of(model)
        return price.cost(usage) if price is not None else None

    def with_others(self, others: Mapping[str, ModelPrice]) -> Prices:
        """The same, but where `others` says something else."""
        return Prices({**self.models, **{name.lower(): price for name, price in others.items()}})


def load_prices(path: Path | None = None) -> Prices:
    """Raises `ConfigurationError`."""
    path = path or data_files("agents") / "prices" / "models.toml"
    try:
        tables = tomllib.loads(path.read_text())
        return Prices({name.lower(): ModelPrice.model_validate(table) for name, table in tables.items()})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigurationError(f"the prices of models in {path} are not valid: {error}") from error


@cache
def list_prices() -> Prices:
    """Those that ship with Sandlot."""
    return load_prices()
