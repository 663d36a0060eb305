"""Saliency maps that account for the whole output of a model (FullGrad)."""

from __future__ import annotations

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.explanation import saliency
from vinedresser.explain.saliency.result import BiasTerm, Saliency

__all__ = ["BiasTerm", "Saliency", "SaliencyError", "saliency"]
