"""The visible families."""

from __future__ import annotations

from benchmarks.world.families import plateaus, tabular_classification
from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "plateaus": plateaus.FAMILY,
    "tabular_classification": tabular_classification.FAMILY,
}
