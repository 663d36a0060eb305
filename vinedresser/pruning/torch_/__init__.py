"""Filter pruning of PyTorch models."""

from vinedresser.pruning.torch_.prunable import TorchPrunable

__all__ = ["TorchPrunable"]
