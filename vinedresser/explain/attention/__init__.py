"""Attention of transformers: heads by layer, their statistics, and a page of both."""

from __future__ import annotations

from vinedresser.explain.attention.page import write_attention
from vinedresser.explain.attention.reading import read_attention
from vinedresser.explain.attention.statistics import HeadStatistics, head_statistics
from vinedresser.explain.attention.weights import Attention, LayerAttention

__all__ = [
    "Attention",
    "HeadStatistics",
    "LayerAttention",
    "head_statistics",
    "read_attention",
    "write_attention",
]
