"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and two thirds of their faults are those that the
literature finds most often. They have not been judged.
"""

from __future__ import annotations

import sys

from benchmarks.world.family import Family, families_in

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = families_in(sys.modules[__name__])
