"""Filter pruning of PyTorch models."""

from vinedresser.pruning.torch_.prunable import TorchPrunable
from vinedresser.pruning.torch_.surgery import removed

__all__ = ["TorchPrunable", "removed"]
