"""What calls cost: by the operator's own prices, else by the list prices of `genai-prices`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache

from genai_prices import Usage, calc_price

from sandlot.platform.core.models import NANO, ModelApi, ModelPrice, ModelTokens

UNKNOWN = ModelPrice(input=15.0, output=75.0)  # of a model that nobody knows: high, so that a limit holds
_PROVIDERS = {ModelApi.ANTHROPIC: "anthropic", ModelApi.OPENAI: "openai", ModelApi.GEMINI: "google"}


@dataclass(frozen=True, slots=True)
class Cost:
    nano: int
    known: bool  # false: nobody knows this model's price, and a high one was taken


class Prices:
    def __init__(self, own: Mapping[str, ModelPrice]) -> None:
        self._own = dict(own)

    def cost(self, api: ModelApi, model: str, tokens: ModelTokens) -> Cost:
        known = self.known(model, tokens, api)
        return Cost(known, True) if known is not None else Cost(_by(UNKNOWN, tokens), False)

    def known(self, model: str, tokens: ModelTokens, api: ModelApi | None = None) -> int | None:
        """In billionths of a dollar; None if nobody knows the model's price. A provider's name before a model's is left out."""
        name = model.rpartition("/")[2]
        own = self._own.get(name) or next((p for each, p in self._own.items() if fnmatchcase(name, each)), None)
        return _by(own, tokens) if own is not None else _listed(api, name, tokens)


LIST_PRICES = Prices({})


@lru_cache(maxsize=4096)
def _listed(api: ModelApi | None, model: str, tokens: ModelTokens) -> int | None:
    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write,
    )
    for provider in (
        _PROVIDERS[api] if api is not None else None,
        None,
    ):  # an OpenAI-compatible endpoint may serve anybody's models
        try:
            found = calc_price(usage, model, provider_id=provider)
        except (LookupError, ValueError):
            continue
        return int(Decimal(found.total_price) * NANO)
    return None


def _by(price: ModelPrice, tokens: ModelTokens) -> int:
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    fresh = max(0, tokens.input - tokens.cached - tokens.cache_write)
    total = fresh * price.input + tokens.cached * cached + tokens.cache_write * written + tokens.output * price.output
    return round(total * NANO / 1_000_000)
