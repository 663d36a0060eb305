"""Rules that say, layer by layer, which channel each element of an output belongs to."""

from __future__ import annotations

from vinedresser.pruning.keras_.rules import elementwise, normalisation, shapes, weighted
from vinedresser.pruning.keras_.rules.call import Call, Rule, unlabelled

__all__ = ["RULES", "Call", "Rule", "unlabelled"]

RULES: dict[type, Rule] = {
    **weighted.RULES,
    **normalisation.RULES,
    **elementwise.RULES,
    **shapes.RULES,
}
