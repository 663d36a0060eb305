"""What the parts of a model are: the types of its modules or layers, and which are activations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ACTIVATIONS", "ModuleInfo", "activation_of", "module_of"]

# Names of activation functions as the frameworks spell them; those with a softmax or a gate too.
ACTIVATIONS = frozenset(
    re.findall(
        r"\w+",
        "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh hardshrink "
        "hardsigmoid hardswish hardtanh leaky_relu log_sigmoid log_softmax logsigmoid mish prelu "
        "relu relu6 rrelu selu sigmoid silu soft_shrink softmax softmin softplus softshrink "
        "softsign sparse_plus sparsemax squareplus swish tanh tanh_shrink tanhshrink threshold",
    )
)

# Of the kinds whose names end with what a module owns, such as a parameter: how many parts that is.
_OWNED = {
    **dict.fromkeys(("weights", "biases", "gradients", "updates", "buffers"), 1),
    "optimizer_state": 2,
}
_CALLED = frozenset({"inputs", "outputs", "attention"})
# After a module's path: the number of the call, the place in a nesting, the statistic.
_REST = re.compile(r"[#\[|].*", re.DOTALL)
_FUNCTION = re.compile(r"(?:^|\.)(\w+)\(\)$")


class ModuleInfo(NamedTuple):
    """What a module or layer is.

    Attributes:
        type: the name of its class, such as "Conv2d".
        activation: what function its output is of, element by element or over classes, such as
            "relu" or "softmax"; "" where it is none.
        root: it is a watched model itself, not a part of one.
    """

    type: str
    activation: str = ""
    root: bool = False

    def words(self) -> list[str]:
        """Return it as a run's record has it (`RunRecord.modules`)."""
        return [self.type, self.activation, *(["model"] if self.root else [])]


def module_of(name: str) -> str | None:
    """Return the path of the module that a tensor belongs to; None where it belongs to none.

    Args:
        name: the tensor's full name: ``outputs/block1.conv#1`` belongs to ``block1.conv``, and so
            does ``gradients/block1.conv.weight``.
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
    """Return the activation function that a tensor is the input or output of; "" where of none.

    Args:
        name: the tensor's full name.
        modules: what the model's modules are, by path. A function that a module calls, such as
            ``block1.relu()``, is known by its name.
    """
    path = module_of(name) if name.startswith(("inputs/", "outputs/")) else None
    if path is None:
        return ""
    if path in modules:
        return modules[path].activation
    called = _FUNCTION.search(path)
    return called[1] if called and called[1] in ACTIVATIONS else ""
