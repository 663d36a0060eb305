"""Comparison of runs: what differs between them, when they part, which is best."""

from __future__ import annotations

from vinedresser.explain.comparison.comparing import Comparison, compare

__all__ = ["Comparison", "compare"]
