"""The visible families, in a package per kind of data."""

from __future__ import annotations

import sys

from benchmarks.world.family import Family, families_in

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = families_in(sys.modules[__name__])
