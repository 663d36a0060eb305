"""Families that nobody looks at while working on rules; `--sealed` runs them.

The last ones have been judged, and are visible.
"""

from __future__ import annotations

from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {}
