"""Filter pruning of Keras 3 models, with the TensorFlow or PyTorch backend."""

from __future__ import annotations

from vinedresser.pruning.keras_.prunable import KerasPrunable

__all__ = ["KerasPrunable"]
