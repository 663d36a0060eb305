"""How the loss of a training was computed, as far as that of an evaluation can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = [
    "NLL",
    "Kernel",
    "Part",
    "Returned",
    "are_divided_by_labels",
    "are_shared",
    "multiples",
    "part_of",
]


class Kernel(NamedTuple):
    """A function of torch's C++ code that the functions of `torch.nn.functional` call.

    Attributes:
        owner: module that holds it.
        reduction: position of the reduction in its arguments, after input, target and weights.
        kind: of a cross-entropy, "soft" if its labels are probabilities; of a divergence, "per row"
            or "per element".
    """

    owner: Any
    name: str
    reduction: int
    kind: str = ""


# A scalar output of a model: the id of the model, and the name of the output.
Returned = tuple[int, str]

_NN: Any = torch._C._nn
NLL = (Kernel(_NN, "cross_entropy_loss", 3), Kernel(_NN, "nll_loss_nd", 3))
"""Functions whose mean is one over the labels that are not ignored."""
# What computes a loss, by the name of its autograd node.
_KERNELS = {
    "NllLossBackward0": NLL,
    "NllLoss2DBackward0": NLL,
    "MseLossBackward0": (Kernel(_NN, "mse_loss", 2),),
    "SmoothL1LossBackward0": (Kernel(_NN, "smooth_l1_loss", 2),),
    "HuberLossBackward0": (Kernel(_NN, "huber_loss", 2),),
    "BinaryCrossEntropyBackward0": (Kernel(_NN, "binary_cross_entropy", 3),),
    "BinaryCrossEntropyWithLogitsBackward0": (
        Kernel(torch, "binary_cross_entropy_with_logits", 4),
    ),
}
# The same for elementary functions.
_L1, _MSE = (Kernel(_NN, "l1_loss", 2),), _KERNELS["MseLossBackward0"]
_SOFT = (Kernel(_NN, "cross_entropy_loss", 3, "soft"),)
_PER_ROW = (Kernel(torch, "kl_div", 2, "per row"),)
_PER_ELEMENT = (Kernel(torch, "kl_div", 2, "per element"),)
# Torch's numbers of the reductions.
_MEAN, _SUM = 1, 2
_ABOUT = 1.1
# Maximum number of terms of a loss that is a sum.
_MOST_TERMS = 16


class Part(NamedTuple):
    """A loss that is passed to a backward pass.

    Attributes:
        kernels: functions of which one may have computed it; () if none is known.
        divisor: number by which their value is divided.
        returned: the output of a model that it is a multiple of; None if it is of none.
        share: number by which that output is divided.
        summed: whether it is the sum of the losses of labels, not their mean.
        labels: number of these labels, if they were counted.
        mean: whether the output is certainly a mean.
    """

    kernels: tuple[Kernel, ...] = ()
    divisor: float = 1.0
    returned: Returned | None = None
    share: float = 1.0
    summed: bool = False
    labels: int = 0
    mean: bool = False


def part_of(node: Any, outputs: Mapping[int, Returned], *, counts: bool) -> Part:
    """Return how a loss was computed.

    Args:
        node: its autograd node; None if it is not known.
        outputs: scalar outputs of models, by the sequence number of their autograd nodes.
        counts: whether to count the labels of a sum.
    """
    divisor, share = 1.0, 1.0
    returned = origin = None
    while node is not None:
        if returned is None:
            returned, share, origin = outputs.get(node._sequence_nr()), divisor, node
        if soft := _soft(node):
            break
        factor = _factor(node)
        if factor is None:
            break
        divisor *= factor
        node = node.next_functions[0][0]
    else:
        return Part()
    kernels, summed = (soft, False) if soft else _kernels_at(node)
    mean = returned is not None and _is_mean(origin)
    labels = _number_of_labels(node) if summed and counts else 0
    return Part(kernels, divisor, returned, share, summed=summed, labels=labels, mean=mean)


def _kernels_at(node: Any) -> tuple[tuple[Kernel, ...], bool]:
    """Return the kernels that may have computed a node, and whether it is a sum over labels."""
    if node.name() == "MeanBackward0":
        return _kernels_of_mean(node), False
    kernels = _KERNELS.get(node.name(), ())
    if not kernels or _weighted(node):
        return (), False
    summed = node._saved_reduction == _SUM
    return (() if summed and kernels is not NLL else kernels), summed and kernels is NLL


def multiples(node: Any) -> Iterator[Any]:
    """Yield an autograd node, and those that it is a multiple of."""
    while node is not None:
        yield node
        node = None if _factor(node) is None else node.next_functions[0][0]


def are_shared(parts: Sequence[Part]) -> bool:
    """Return whether the sum of the parts of a step is a mean of their means.

    Args:
        parts: losses of the micro-batches of a step, at least one, all means.
    """
    first = parts[0]
    alike = all(part.kernels == first.kernels and part.divisor == first.divisor for part in parts)
    return alike and math.isclose(len(parts), first.divisor)


def are_divided_by_labels(parts: Sequence[Part]) -> bool:
    """Return whether the sum of the parts of a step is about divided by the number of its labels.

    Libraries also count a label that a shift by one leaves out.

    Args:
        parts: losses of the micro-batches, at least one, all sums whose labels were counted.
    """
    count = sum(part.labels for part in parts)
    alike = all(part.divisor == parts[0].divisor for part in parts)
    return alike and count <= parts[0].divisor <= _ABOUT * count


def _number_of_labels(node: Any) -> int:
    """Return the number of labels of a loss that are not ignored."""
    # Autograd returns the ignored one without a sign.
    ignored = (node._saved_ignore_index + 2**63) % 2**64 - 2**63
    return int((node._saved_target != ignored).sum())


def _factor(node: Any) -> float | None:
    """Return the number by which an autograd node divides; None if it does something else."""
    name = node.name()
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    other = saved(node, "other")
    # A number on a GPU is not worth waiting for.
    if other is None or other.numel() != 1 or other.is_cuda or not other:
        return None
    return float(other) if name == "DivBackward0" else 1 / float(other)


def _weighted(node: Any) -> bool:
    """Return whether the function of an autograd node has weights of classes or samples."""
    weights = [getattr(node, f"_saved_{name}", None) for name in ("weight", "pos_weight")]
    return any(weight is not None for weight in weights)


def _is_mean(node: Any) -> bool:
    """Return whether a node is a mean over a batch, or a weighted sum of such means."""
    nodes, terms = [node], 0
    while nodes:
        node = nodes.pop()
        terms += 1
        if node is None or terms > _MOST_TERMS:
            return False
        name = node.name()
        if name in ("AddBackward0", "SubBackward0"):
            nodes.extend(one for one, _ in node.next_functions)
        elif name in ("MulBackward0", "DivBackward0"):
            # Of two factors with gradients, none is a number.
            if _factor(node) is None:
                return False
            nodes.append(node.next_functions[0][0])
        elif name != "MeanBackward0" and getattr(node, "_saved_reduction", _SUM) != _MEAN:
            return bool(_soft(node)) and not nodes
    return True


def _kernels_of_mean(node: Any) -> tuple[Kernel, ...]:
    """Return the kernel that computes a mean of absolute or squared differences, if it is one."""
    function = node.next_functions[0][0]
    if function is None or function.name() not in ("AbsBackward0", "PowBackward0"):
        return ()
    absolute = function.name() == "AbsBackward0"
    difference = function.next_functions[0][0]
    if difference is None or difference.name() != "SubBackward0":
        return ()
    labelled = [origin for origin, _ in difference.next_functions].count(None) == 1
    if not labelled or difference._saved_alpha != 1:
        return ()
    return _L1 if absolute else _MSE if function._saved_exponent == 2 else ()


def _soft(node: Any) -> tuple[Kernel, ...]:
    """Return the kernel that compared a softmax with probabilities, if a node is its mean.

    That is a cross-entropy, or a divergence per row (`reduction="batchmean"`) or per element.
    """
    name, below = node.name(), node.next_functions
    if name == "MeanBackward0":
        return () if _targets(below[0][0]) is None else _PER_ELEMENT
    if name not in ("DivBackward0", "DivBackward1") or below[0][0] is None:
        return ()
    divided = below[0][0]
    negated = divided.name() == "NegBackward0"
    summed = divided.next_functions[0][0] if negated else divided
    if summed is None or summed.name() != "SumBackward0":
        return ()
    product = summed.next_functions[0][0]
    targets = _probabilities(product) if negated else _targets(product)
    if targets is None:
        return ()
    # C++ divides by a number, Python by a tensor.
    divisor = _factor(node) if name == "DivBackward0" else float(node._saved_other)
    if not negated:
        return _PER_ROW if divisor == len(targets) else ()
    axis = min(1, targets.ndim - 1)
    return _SOFT if divisor == targets.numel() / max(targets.shape[axis], 1) else ()


def _targets(node: Any) -> Tensor | None:
    """Return the target of the divergences t log t - t log p, if that is what a node computes."""
    if node is None or node.name() != "SubBackward0":
        return None
    (entropy, _), (product, _) = node.next_functions
    return None if entropy is not None else _probabilities(product)


def _probabilities(node: Any) -> Tensor | None:
    """Return the other factor of a product with the logarithms of a softmax."""
    if node is None or node.name() != "MulBackward0":
        return None
    (first, _), (second, _) = node.next_functions
    if (first is None) == (second is None) or (first or second).name() != "LogSoftmaxBackward0":
        return None
    found = saved(node, "self" if first is None else "other")
    return found if found is not None and found.ndim else None
