"""Saliency of the same examples over the steps of a run."""

from __future__ import annotations

from vinedresser.explain.saliency.over_steps.explaining import (
    SaliencyOverSteps,
    saliency_over_steps,
)
from vinedresser.explain.saliency.over_steps.page import write_saliency_steps

__all__ = ["SaliencyOverSteps", "saliency_over_steps", "write_saliency_steps"]
