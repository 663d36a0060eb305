"""Which modules of a torch model compute otherwise in training than in evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = ["dropout_rates", "training_share"]


def training_share(modules: Iterable[nn.Module]) -> float | None:
    """Return the share of such modules that are in training mode; None where there are none.

    They are dropout that drops something, also that of attention and between recurrent layers,
    batch and instance normalisation with running statistics, and the randomised leaky ReLU. What a
    model does by hand (a function with ``training=self.training``) is not known.
    """
    flags = [module.training for module in modules if _differs(module)]
    return sum(flags) / len(flags) if flags else None


def dropout_rates(modules: Iterable[tuple[str, nn.Module]]) -> dict[str, float]:
    """Return the share that each module drops in training, where it drops any.

    Args:
        modules: with their paths.
    """
    rates = {path: _dropout(module) for path, module in modules}
    return {path: rate for path, rate in rates.items() if rate > 0}


def _dropout(module: nn.Module) -> float:
    """Return the share that a module itself drops in training."""
    if isinstance(module, _DropoutNd):
        return float(module.p)
    if isinstance(module, nn.RNNBase):
        return float(module.dropout) if module.num_layers > 1 else 0.0
    return float(module.dropout) if isinstance(module, nn.MultiheadAttention) else 0.0


def _differs(module: nn.Module) -> bool:
    """Return whether a module's own forward depends on its mode."""
    if isinstance(module, _BatchNorm | _InstanceNorm):
        return module.running_mean is not None
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    return _dropout(module) > 0
