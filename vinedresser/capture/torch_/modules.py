"""Properties of torch modules: activation functions, dependence on the training mode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from vinedresser.frameworks.torch_.names import own_class
from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["ACTIVATIONS", "activation_name", "dropout_rates", "module_info", "training_share"]

_CLASSES = re.findall(
    r"\w+",
    "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax "
    "Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
    "Softsign Tanh Tanhshrink Threshold",
)
# Functions whose name is not that of their class in lower case.
_NAMES = {"LeakyReLU": "leaky_relu", "LogSoftmax": "log_softmax", "Softmax2d": "softmax"}
# The name of the function in torch.nn.functional by class.
ACTIVATIONS = MappingProxyType({getattr(nn, one): _NAMES.get(one, one.lower()) for one in _CLASSES})


def activation_name(module: nn.Module) -> str:
    """Return the name of a module's activation function, also for subclasses; "" if none."""
    found = (ACTIVATIONS.get(base) for base in type(module).__mro__ if issubclass(base, nn.Module))
    return next((name for name in found if name), "")


def training_share(modules: Iterable[nn.Module]) -> float | None:
    """Return the share of mode-dependent modules in training mode, or None if there are none.

    The model itself counts, too: if its mode is another one than that of all of them, somebody has
    set theirs on purpose, such as that of frozen batch norm.

    These are dropout with a positive rate (also in attention and between recurrent layers), batch
    and instance normalization with running statistics, and `nn.RReLU`. Function calls with
    ``training=self.training`` are not detected.
    """
    model, *others = modules
    flags = [module.training for module in (model, *others) if _differs(module)]
    return (sum(flags) + model.training) / (len(flags) + 1) if flags else None


def dropout_rates(modules: Iterable[tuple[str, nn.Module]]) -> dict[str, float]:
    """Return the positive dropout rates of modules by path."""
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


def module_info(module: nn.Module, *, root: bool) -> ModuleInfo:
    """Return class and activation function of a module.

    Args:
        root: whether it is the watched model itself.
    """
    return ModuleInfo(own_class(module).__name__, activation_name(module), root)
