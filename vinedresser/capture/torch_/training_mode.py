"""The modules of a torch model that behave differently in training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = ["dropout_rates", "training_share"]


def training_share(modules: Iterable[nn.Module]) -> float | None:
    """Return the share of mode-dependent modules in training mode, or None if there are none.

    These are dropout with a positive rate (also in attention and between recurrent layers), batch
    and instance normalization with running statistics, and `nn.RReLU`. Function calls with
    ``training=self.training`` are not detected.
    """
    flags = [module.training for module in modules if _differs(module)]
    return sum(flags) / len(flags) if flags else None


def dropout_rates(modules: Iterable[tuple[str, nn.Module]]) -> dict[str, float]:
    """Return the positive dropout rates of modules by path.

    Args:
        modules: paths and modules.
    """
    rates = {path: _dropout(module) for path, module in modules}
    return {path: rate for path, rate in rates.items() if rate > 0}


def _dropout(module: nn.Module) -> float:
    """Return the dropout rate of a module itself."""
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
