"""What a finding recommends."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Advice"]


class Advice(NamedTuple):
    """The likely cause, and the concrete change to try."""

    cause: str
    remedy: str
