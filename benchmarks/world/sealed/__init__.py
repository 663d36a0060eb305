"""Families that nobody looks at while working on rules; `--sealed` runs them."""

from __future__ import annotations

from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {}
