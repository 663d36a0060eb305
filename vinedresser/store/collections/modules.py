"""Modules of a model: their types, activation functions and tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ACTIVATIONS", "ModuleInfo", "activation_of", "module_of"]

# Names of activation functions in the frameworks, including softmaxes and gates.
ACTIVATIONS = frozenset(
    re.findall(
        r"\w+",
        "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh hardshrink "
        "hardsigmoid hardswish hardtanh leaky_relu log_sigmoid log_softmax logsigmoid mish prelu "
        "relu relu6 rrelu selu sigmoid silu soft_shrink softmax softmin softplus softshrink "
        "softsign sparse_plus sparsemax squareplus swish tanh tanh_shrink tanhshrink threshold",
    )
)

# For kinds whose names end with a parameter of a module: the number of name parts after its path.
_OWNED = {
    **dict.fromkeys(("weights", "biases", "gradients", "updates", "buffers", "weight_taylor"), 1),
    "optimizer_state": 2,
}
_CALLED = frozenset({"inputs", "outputs", "attention", "input_taylor", "loss_terms"})
# The rest after a module's path: number of the call, position in a nesting, statistic.
_REST = re.compile(r"[#\[|].*", re.DOTALL)
_FUNCTION = re.compile(r"(?:^|\.)(\w+)\(\)$")


class ModuleInfo(NamedTuple):
    """A module or layer of a model.

    Attributes:
        type: name of its class, such as "Conv2d".
        activation: the activation function that it computes, such as "relu" or "softmax"; "" if it
            is none.
        root: it is a watched model itself, not a part of one.
    """

    type: str
    activation: str = ""
    root: bool = False

    def words(self) -> list[str]:
        """Return the module as stored in `RunRecord.modules`."""
        return [self.type, self.activation, *(["model"] if self.root else [])]


def module_of(name: str) -> str | None:
    """Return the path of the module that a tensor belongs to; None if it belongs to none.

    Args:
        name: full name of the tensor: ``outputs/block1.conv#1`` and
            ``gradients/block1.conv.weight`` both belong to ``block1.conv``.
    """
    kind, slash, rest = name.partition("/")
    if not slash:
        return None
    if kind in _CALLED:
        return _REST.sub("", rest)
    if kind not in _OWNED:
        return None
    parts = _REST.sub("", rest).rsplit(".", _OWNED[kind])
    return parts[0] if len(parts) > _OWNED[kind] else ""


def activation_of(name: str, modules: Mapping[str, ModuleInfo]) -> str:
    """Return the activation function that a tensor is the input or output of; "" if there is none.

    Args:
        name: full name of the tensor.
        modules: the model's modules by path. A function that a module calls, such as
            ``block1.relu()``, is recognized by its name.
    """
    path = module_of(name) if name.startswith(("inputs/", "outputs/")) else None
    if path is None:
        return ""
    if path in modules:
        return modules[path].activation
    called = _FUNCTION.search(path)
    return called[1] if called and called[1] in ACTIVATIONS else ""
