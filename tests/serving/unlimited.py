"""Limits under which every request is recorded, however slow the machine is."""

from __future__ import annotations

from vinedresser.serving import Limits

__all__ = ["UNLIMITED"]

UNLIMITED = Limits(rate=1e9, cost=1.0)
