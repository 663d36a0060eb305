"""Saliency from what a training has computed: the captured terms of its loss."""

from __future__ import annotations

from vinedresser.explain.saliency.captured.page import write_captured_saliency
from vinedresser.explain.saliency.captured.reading import (
    CapturedSaliency,
    captured_over_steps,
    captured_saliency,
    saliency_steps,
)

__all__ = [
    "CapturedSaliency",
    "captured_over_steps",
    "captured_saliency",
    "saliency_steps",
    "write_captured_saliency",
]
