"""Rules that judge runs: the base class, the engine, the built-in rules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.rules.base import Rule as Rule
    from vinedresser.rules.base import capture_for as capture_for
    from vinedresser.rules.engine import Engine as Engine
    from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing as LossNotDecreasing
    from vinedresser.rules.losses.overfitting import Overfitting as Overfitting
    from vinedresser.rules.need import Need as Need
    from vinedresser.rules.registry import RULES as RULES
    from vinedresser.rules.registry import describe as describe
    from vinedresser.rules.registry import rules_from_table as rules_from_table
    from vinedresser.rules.tensors.nonfinite import Nonfinite as Nonfinite
    from vinedresser.rules.tensors.vanishing_gradient import (
        VanishingGradient as VanishingGradient,
    )

# Module of each public name; imported on first use.
_HOMES = {
    "RULES": "registry",
    "Engine": "engine",
    "LossNotDecreasing": "losses.loss_not_decreasing",
    "Need": "need",
    "Nonfinite": "tensors.nonfinite",
    "Overfitting": "losses.overfitting",
    "Rule": "base",
    "VanishingGradient": "tensors.vanishing_gradient",
    "capture_for": "base",
    "describe": "registry",
    "rules_from_table": "registry",
}

__all__ = [
    "RULES",
    "Engine",
    "LossNotDecreasing",
    "Need",
    "Nonfinite",
    "Overfitting",
    "Rule",
    "VanishingGradient",
    "capture_for",
    "describe",
    "rules_from_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vinedresser.rules.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
