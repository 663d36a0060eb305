"""The rule of each layer and operation."""

from __future__ import annotations

from vinedresser.pruning.keras_.rules.call import Rule
from vinedresser.pruning.keras_.rules.elementwise import RULES as _ELEMENTWISE
from vinedresser.pruning.keras_.rules.normalisation import RULES as _NORMALISATIONS
from vinedresser.pruning.keras_.rules.shapes import RULES as _SHAPES
from vinedresser.pruning.keras_.rules.weighted import RULES as _WEIGHTED

RULES: dict[type, Rule] = {**_WEIGHTED, **_NORMALISATIONS, **_ELEMENTWISE, **_SHAPES}
"""Rule by class; subclasses have none, since they can compute something else."""
