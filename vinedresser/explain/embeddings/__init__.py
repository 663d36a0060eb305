"""Embeddings of captured activations over the steps of a run."""

from __future__ import annotations

from vinedresser.explain.embeddings.page import (
    Embeddings,
    embed,
    embeddings_png,
    write_embeddings,
)
from vinedresser.explain.embeddings.reading import Activations, read_activations

__all__ = [
    "Activations",
    "Embeddings",
    "embed",
    "embeddings_png",
    "read_activations",
    "write_embeddings",
]
