"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, half of their faults are those that the literature
finds most often, and none of them has been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed.images import ages, leaves, plankton
from benchmarks.world.sealed.tables import buildings, churn, housing

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "ages": ages.FAMILY,
    "buildings": buildings.FAMILY,
    "churn": churn.FAMILY,
    "housing": housing.FAMILY,
    "leaves": leaves.FAMILY,
    "plankton": plankton.FAMILY,
}
