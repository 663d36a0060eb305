"""Values of a journal as values of a space that was widened since they were proposed.

Samplers learn from trials with the ranges of the new one only, and Optuna allows no choices to be
added. So the entries get the distributions of the new space when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from vinedresser.sweeps.proposer import Suggested
from vinedresser.sweeps.space import Space

__all__ = ["distributions", "renewed"]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each hyperparameter."""
    noted = _Noted()
    for dimension in space.dimensions:
        dimension.suggest(noted)
    return noted.distributions


def renewed(entry: dict[str, Any], wider: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Return an entry of a journal with the distributions of a space.

    Args:
        entry: the entry; one without values is returned as it is, and so is one with a value that
            the space does not have.
        wider: the distributions by name.
    """
    name = entry.get("param_name")
    if isinstance(name, str):
        value, text = _renewed(
            entry.get("param_value_internal"), entry.get("distribution"), wider.get(name)
        )
        return {**entry, "param_value_internal": value, "distribution": text}
    values, texts = entry.get("params"), entry.get("distributions")
    if not isinstance(values, dict) or not isinstance(texts, dict):
        return entry
    both = {
        name: _renewed(value, texts.get(name), wider.get(name)) for name, value in values.items()
    }
    return {
        **entry,
        "params": {name: value for name, (value, _) in both.items()},
        "distributions": {name: text for name, (_, text) in both.items()},
    }


def _renewed(value: Any, text: Any, new: BaseDistribution | None) -> tuple[Any, Any]:
    """Return Optuna's number for a value, and the text of its distribution."""
    if new is None or not isinstance(text, str) or text == distribution_to_json(new):
        return value, text
    try:
        one = json_to_distribution(text).to_external_repr(value)
        if type(new) is CategoricalDistribution and one not in new.choices:
            return value, text
        return new.to_internal_repr(one), distribution_to_json(new)
    except (ValueError, TypeError, KeyError, IndexError):
        # Of a damaged journal: the storage says so.
        return value, text


class _Noted(Suggested):
    """Proposes any values, and notes their distributions; see `Suggester`."""

    def __init__(self) -> None:
        self.distributions: dict[str, BaseDistribution] = {}

    def _value(self, name: str, distribution: BaseDistribution) -> Any:
        self.distributions[name] = distribution
        if isinstance(distribution, CategoricalDistribution):
            return distribution.choices[0]
        assert isinstance(distribution, (FloatDistribution, IntDistribution))
        return distribution.low
