"""Predictions and labels of loss functions, from the autograd graph of the loss."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.elementary_losses import Elementary, elementary_loss
from vinedresser.frameworks.torch_.losses.loss_paths import Path, path_below
from vinedresser.frameworks.torch_.losses.output_activations import activation_of
from vinedresser.frameworks.torch_.losses.saved_tensors import saved, signed

__all__ = ["Comparison", "LossInputs", "comparisons", "have_other_labels", "loss_inputs"]

_LOG_SOFTMAX = "LogSoftmaxBackward0"
_VIEWS = ("UnsqueezeBackward0", "ViewBackward0")
# Functions of a number, which may be negative, and a tensor.
_SCALED = frozenset({"MulBackward0", "DivBackward0"})
# The same as torch itself calls them.
_SCALED_BY_NUMBERS = frozenset({"MulBackward1", "DivBackward1"})
# Positions of the arguments that functions subtract.
_SUBTRACTED = {"NegBackward0": 0, "RsubBackward1": 0, "SubBackward0": 1}
# Settings that nodes have saved.
_REDUCTIONS = ("none", "mean", "sum")
_WEIGHTS = ("weight", "pos_weight")
# Functions that increase with each argument; all others but these, such as a reciprocal, may not.
_INCREASING = re.compile(
    r"(?:Add|Sub|Neg|Rsub|Mean|NanMean|Sum|NanSum|CumSum|View|UnsafeView|ReshapeAlias|Squeeze|"
    r"Unsqueeze|Expand|Select|Slice|Index|Stack|Cat|Split|Unbind|Permute|Transpose|T|Clone|ToCopy|"
    r"Alias|Max|Min|Maximum|Minimum|Amax|Amin|Clamp|ClampMin|ClampMax|Relu|LeakyRelu|Softplus|"
    r"Sigmoid|Tanh|Exp|Expm1|Log|Log2|Log10|Log1P|Sqrt|Logsumexp|Logaddexp|MaskedSelect|Where"
    r")Backward\d*"
)

# Functions by the names of their autograd nodes.
_FUNCTIONS = {
    "NllLossBackward0": "nll_loss",
    "NllLoss2DBackward0": "nll_loss",
    "BinaryCrossEntropyBackward0": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogitsBackward0": "binary_cross_entropy_with_logits",
    "MseLossBackward0": "mse_loss",
    "SmoothL1LossBackward0": "smooth_l1_loss",
    "HuberLossBackward0": "huber_loss",
    "CtcLossBackward0": "ctc_loss",
    "MultiMarginLossBackward0": "multi_margin_loss",
    "SoftMarginLossBackward0": "soft_margin_loss",
}
# Those that are the same with their arguments exchanged, as in ``F.mse_loss(target, output)``.
_SYMMETRIC = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss"})
# Attributes of autograd nodes that hold predictions and labels.
_ARGUMENTS = ("self", "target")
_CTC_ARGUMENTS = ("log_probs", "targets")
# A loss is a few sums and products away from its functions; the rest of the graph is the model's.
_MOST_NODES = 40
# Maximum number of elementary functions to choose from.
_MOST_ELEMENTARY = 8
# Elementary functions that certainly compare with a label, and not with an action.
_DIFFERENCES = ("l1_loss", "mse_loss")


class LossInputs(NamedTuple):
    """What a loss function compared.

    Attributes:
        predictions: its first argument as the function saved it, or of errors the only one with a
            gradient; for a cross-entropy the logarithms of the softmax, whose cross-entropy is the
            same, unless the model ends in an activation.
        labels: its other argument.
        function: its name in `torch.nn.functional`.
        negated: whether the loss decreases where the function increases, as in
            ``-F.mse_loss(...)``, and each other function in it, too.
        activation: activation whose result a function was given, such as "relu"; "" if none or
            unknown.
        settings: settings of the function (see `_node_settings`); {} if unknown.
    """

    predictions: Tensor
    labels: Tensor
    function: str
    negated: bool
    activation: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})


def loss_inputs(loss: Tensor, places: int = 1) -> LossInputs | None:
    """Return what the loss function nearest to a loss compared.

    The graph must not have been freed by a backward pass. Errors of elementary functions, such as
    `F.l1_loss` or ``((outputs - labels) ** 2).mean()``, are found if `mark_outputs` was called with
    the outputs of the model.

    Args:
        loss: loss [] with a gradient, such as a weighted sum of several functions.
        places: number of forwards of the model; of several, each continues the one before, as those
            of a recurrent network that a loop calls place by place.

    Returns:
        Detached tensors; None if no such function is found, or if it compares the same predictions
        with other labels, too, as mixtures of examples do. Functions of two values with gradients,
        such as two outputs of the model, compare no labels. If the nearest one compares with a
        single label, as of positive samples, the rows of another call of it with other labels
        follow. Of several places, the rows of all calls of this function are joined in the order of
        the places, or none are found if this is not possible.
    """
    found = _search(loss, places)
    if not found.calls:
        compared = [(one.node._sequence_nr(), one.inputs) for one in found.elementary]
        return _of_places(found, compared) if places > 1 else found.nearest()
    negated = found.signs == {-1}
    same = [call for call in found.calls if call.name() == found.calls[0].name()]
    if places > 1 and len(same) > 1:
        calls = [(one._sequence_nr(), _compared(one, negated=negated)) for one in same]
        return _of_places(found, calls)
    nearest = _compared(found.calls[0], negated=negated)
    others = [_compared(one, negated=negated) for one in same[1:]]
    if nearest is None or any(have_other_labels(nearest, other) for other in others):
        return None
    return _with_other_labels(nearest, [other for other in others if other is not None])


class Comparison(NamedTuple):
    """A comparison in the graph of a loss.

    Attributes:
        node: autograd node of the function.
        inputs: what it compared.
        direct: whether the predictions are certainly outputs of the model.
    """

    node: Any
    inputs: LossInputs
    direct: bool


def comparisons(loss: Tensor) -> list[Comparison]:
    """Return all comparisons of loss functions in a loss, or else of elementary functions.

    Args:
        loss: see `loss_inputs`.

    Returns:
        The nearest to the loss first.
    """
    found = _search(loss, 1)
    negated = found.signs == {-1}
    calls = [(call, _compared(call, negated=negated)) for call in found.calls]
    known = [Comparison(one, inputs, direct=False) for one, inputs in calls if inputs is not None]
    return known if found.calls else found.elementary


class _Found(NamedTuple):
    """What is found in the graph of a loss, nearest first.

    Attributes:
        calls: autograd nodes of loss functions.
        signs: signs of the derivatives of the loss by their values.
        elementary: comparisons of elementary functions.
        complete: whether the search came to the end of the loss.
    """

    calls: list[Any]
    signs: set[int]
    elementary: list[Comparison]
    complete: bool

    def nearest(self) -> LossInputs | None:
        """Return what the nearest elementary function compared.

        Outputs of the model come before values that are computed from them. Of errors by the same
        labels, as of several stages of a model, the one with the smallest counts.
        """
        direct = [one.inputs for one in self.elementary if one.direct]
        found = direct or [one.inputs for one in self.elementary]
        if not found or any(have_other_labels(found[0], one) for one in found[1:]):
            return None
        return min(filter(partial(_same_labels, found[0]), found), key=_error)


def _search(loss: Tensor, places: int) -> _Found:
    """Search the graph of a loss; see `loss_inputs`."""
    waiting: deque[tuple[Any, int, Path | None]] = deque([(loss.grad_fn, 1, Path())])
    calls, signs, elementary = list[Any](), set[int](), list[Comparison]()
    seen, summed = 0, False
    while waiting and seen < _MOST_NODES * places:
        node, sign, path = waiting.popleft()
        if node is None:
            continue
        seen += 1
        if node.name() in _FUNCTIONS:
            calls += [node] if _has_labels(node) else []
            signs.add(sign)
            continue
        enough = len(elementary) >= _MOST_ELEMENTARY * places
        if path is not None and not enough and (found := elementary_loss(node, path)):
            # In a sum, another term may be the one that is minimised.
            inputs = _by_hand(found, 0 if summed else sign)
            if not (summed and _is_penalty(inputs)):
                elementary.append(Comparison(node, inputs, found.direct))
            continue
        summed |= sum(origin is not None for origin, _ in node.next_functions) > 1
        for place, (origin, _) in enumerate(node.next_functions):
            below = path_below(path, node, place) if origin is not None else None
            weighted = below is not None and below.weights != (path or below).weights
            direction = 1 if weighted else _direction(node, place)
            waiting.append((origin, sign * direction, below))
    return _Found(calls, signs, elementary, not any(node for node, _, _ in waiting))


def _is_penalty(inputs: LossInputs) -> bool:
    """Return whether an error is one by the same number everywhere, as of penalties."""
    labels = inputs.labels.reshape(-1)
    return inputs.function in _DIFFERENCES and bool((labels == labels[:1]).all())


def _same_labels(first: LossInputs, other: LossInputs) -> bool:
    """Return whether two errors are of the same labels, which are computed up to rounding."""
    if first is other:
        return True
    if first.function != other.function or first.function not in _DIFFERENCES:
        return False
    alike = first.labels.shape == other.labels.shape == first.predictions.shape
    return alike and torch.allclose(first.labels, other.labels, rtol=1e-4, atol=1e-5)


def have_other_labels(first: LossInputs, other: LossInputs | None) -> bool:
    """Return whether two comparisons are of the same predictions with different labels."""
    if other is None or first.function != other.function:
        return False
    for one, another in zip(first[:2], other[:2], strict=True):
        if one.shape != another.shape or one.device != another.device or one.dtype != another.dtype:
            return False
    same = torch.equal(first.predictions, other.predictions)
    return same and not torch.allclose(first.labels, other.labels, rtol=1e-4, atol=1e-5)


def _error(inputs: LossInputs) -> float:
    """Return the mean absolute error of a comparison; 0 if it is none of numbers."""
    if inputs.function not in _DIFFERENCES or inputs.predictions.shape != inputs.labels.shape:
        return 0.0
    return float((inputs.predictions - inputs.labels).abs().mean())


def _by_hand(found: Elementary, sign: int) -> LossInputs:
    """Return what an elementary function compared, given the sign of its derivative."""
    negated = sign == (1 if found.negative else -1)
    return LossInputs(found.predictions, found.labels, found.function, negated)


def _of_places(
    found: _Found, compared: Sequence[tuple[int, LossInputs | None]]
) -> LossInputs | None:
    """Join what the calls of one function compared at several places.

    Args:
        found: the result of the search.
        compared: sequence numbers of the calls, and what they compared.
    """
    ordered = [one for _, one in sorted(compared, key=itemgetter(0)) if one is not None]
    if not found.complete or len(ordered) < max(len(compared), 1):
        return None
    # The score that is picked by an action is no comparison with a label.
    differences = found.calls or all(one.function in _DIFFERENCES for one in ordered)
    if not differences or len({_kind(one) for one in ordered}) > 1:
        return None
    join = torch.cat if ordered[0].labels.ndim else torch.stack
    return ordered[0]._replace(
        predictions=join([one.predictions for one in ordered]),
        labels=join([one.labels for one in ordered]),
    )


def _kind(inputs: LossInputs) -> tuple[Any, ...]:
    """Return what must be equal in comparisons whose rows are joined."""
    tensors = inputs.predictions, inputs.labels
    shapes = (tensor.shape[1:] if inputs.labels.ndim else tensor.shape for tensor in tensors)
    return inputs.function, inputs.activation, *shapes, *(tensor.device for tensor in tensors)


def _has_labels(node: Any) -> bool:
    """Return whether one of the arguments that the function of a node compares has no gradient."""
    return sum(origin is not None for origin, _ in node.next_functions[:2]) == 1


def _compared(node: Any, *, negated: bool) -> LossInputs | None:
    """Return what the function of an autograd node compared."""
    function = _FUNCTIONS[node.name()]
    names = _CTC_ARGUMENTS if function == "ctc_loss" else _ARGUMENTS
    predictions, labels = (saved(node, name) for name in names)
    if predictions is None or labels is None:
        return None
    before = node.next_functions[0][0]
    if function in _SYMMETRIC and before is None:
        predictions, labels = labels, predictions
    if before is not None and before.name() in _VIEWS:
        # Torch computes the loss of sequences as that of images of one line.
        before = before.next_functions[0][0]
    if function == "nll_loss" and _is_of_classes(before, predictions):
        function = "cross_entropy"
        before = before.next_functions[0][0]
    activation, last = activation_of(before)
    if function == "nll_loss" and before is not None and before.name() == _LOG_SOFTMAX:
        activation = "log_softmax"
    if function == "cross_entropy" and activation:
        # Only the activation's own result shows that there is one.
        result = saved(last, "result") if last is before else None
        activation, predictions = ("", predictions) if result is None else (activation, result)
    if predictions.untyped_storage().data_ptr() == labels.untyped_storage().data_ptr():
        # Two parts of one output.
        return None
    given = _as_given(predictions), _as_given(labels)
    return LossInputs(*given, function, negated, activation, _node_settings(node))


def _with_other_labels(nearest: LossInputs, others: list[LossInputs]) -> LossInputs:
    """Add the rows of another call of the same function if all labels of the nearest are equal."""
    if not others or not _of_one_label(nearest):
        return nearest
    for other in others:
        if (
            _of_one_label(other)
            and other.labels.shape[1:] == nearest.labels.shape[1:]
            and other.labels.device == nearest.labels.device
            and not torch.equal(other.labels[:1], nearest.labels[:1])
        ):
            return nearest._replace(
                predictions=torch.cat([nearest.predictions, other.predictions]),
                labels=torch.cat([nearest.labels, other.labels]),
            )
    return nearest


def _of_one_label(inputs: LossInputs) -> bool:
    """Return whether each element of the predictions has the same label."""
    labels = inputs.labels
    return labels.shape == inputs.predictions.shape and bool((labels == labels[:1]).all())


def _is_of_classes(node: Any, given: Tensor) -> bool:
    """Return whether a node is a log_softmax over the classes.

    Args:
        node: node that computed the argument of a loss function; None if it has none.
        given: the argument, a view of its result [rows, classes] or [rows, classes, ...].
    """
    result = saved(node, "result") if node is not None and node.name() == _LOG_SOFTMAX else None
    if result is None:
        return False
    # Rows of several axes are flattened before their classes, which are the last axis then.
    flattened = given.ndim == 2 < result.ndim and given.shape[-1] == result.shape[-1]
    axis = result.ndim - 1 if flattened else min(1, result.ndim - 1)
    # A negative axis is saved as an unsigned number of 64 bits.
    return node._saved_dim in (axis, axis - result.ndim + (1 << 64))


def _direction(node: Any, place: int) -> int:
    """Return the sign of a derivative; 0 if it is not known without reading the graph's tensors.

    Args:
        node: autograd node of the function.
        place: position of the argument among those of the function that are tensors.
    """
    if node.name() in _SCALED_BY_NUMBERS:
        return -1 if node._saved_other < 0 else 1
    if node.name() not in _SCALED:
        if _INCREASING.fullmatch(node.name()) is None:
            return 0
        return -1 if _SUBTRACTED.get(node.name()) == place else 1
    others = [origin for origin, _ in node.next_functions]
    factor = saved(node, "other") if others[1:] == [None] else None
    # The value of a tensor on another device would have to be waited for.
    if factor is None or factor.numel() != 1 or factor.device.type != "cpu":
        return 0
    return -1 if factor < 0 else 1


def _as_given(saved: Tensor) -> Tensor:
    """Return a tensor without the dimensions to which the function has broadcast it."""
    while saved.ndim and saved.stride(0) == 0 and len(saved) > 1:
        saved = saved[0]
    for axis in range(saved.ndim):
        if saved.stride(axis) == 0:
            saved = saved.narrow(axis, 0, 1)
    return saved


def _node_settings(node: Any) -> dict[str, Any]:
    """Return the settings of the function of an autograd node, as those of a loss module.

    Args:
        node: node of a function of `torch.nn.functional`.

    Returns:
        ``reduction`` and, if the function has them, ``ignore_index``, and whether there are weights
        as ``weight`` and ``pos_weight``.
    """
    found: dict[str, Any] = {}
    if hasattr(node, "_saved_reduction"):
        found["reduction"] = _REDUCTIONS[node._saved_reduction]
    if hasattr(node, "_saved_ignore_index"):
        found["ignore_index"] = signed(node._saved_ignore_index)
    for name in _WEIGHTS:
        # Unpacking them may run the user's code.
        raw = getattr(node, f"_raw_saved_{name}", None)
        if raw is not None:
            found[name] = raw.data is not None
    return found
