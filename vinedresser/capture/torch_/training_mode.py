"""Which modules of a torch model compute otherwise in training than in evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = ["training_share"]


def training_share(modules: Iterable[nn.Module]) -> float | None:
    """Return the share of such modules that are in training mode; None where there are none.

    They are dropout that drops something, also that of attention and between recurrent layers,
    batch and instance normalisation with running statistics, and the randomised leaky ReLU. What a
    model does by hand (a function with ``training=self.training``) is not known.
    """
    flags = [module.training for module in modules if _differs(module)]
    return sum(flags) / len(flags) if flags else None


def _differs(module: nn.Module) -> bool:
    """Say whether a module's own forward depends on its mode."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, _BatchNorm | _InstanceNorm):
        return module.running_mean is not None
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.MultiheadAttention) and module.dropout > 0
