"""Losses of evaluations that functions compute, in the loop or inside the model."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple

import torch
import torch.jit._builtins as builtins
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.calls import ModuleHook

__all__ = ["EvaluatedLosses", "Evaluated"]


class _Kernel(NamedTuple):
    """A function of torch's C++ code that the functions of `torch.nn.functional` call.

    Attributes:
        owner: module that holds it.
        name: its name.
        reduction: position of the reduction in its arguments, after input, target and weights.
    """

    owner: Any
    name: str
    reduction: int


_NN: Any = torch._C._nn
# What computes a loss, by the name of its autograd node.
_NLL = (_Kernel(_NN, "cross_entropy_loss", 3), _Kernel(_NN, "nll_loss_nd", 3))
_KERNELS = {
    "NllLossBackward0": _NLL,
    "NllLoss2DBackward0": _NLL,
    "MseLossBackward0": (_Kernel(_NN, "mse_loss", 2),),
    "SmoothL1LossBackward0": (_Kernel(_NN, "smooth_l1_loss", 2),),
    "HuberLossBackward0": (_Kernel(_NN, "huber_loss", 2),),
    "BinaryCrossEntropyBackward0": (_Kernel(_NN, "binary_cross_entropy", 3),),
    "BinaryCrossEntropyWithLogitsBackward0": (
        _Kernel(torch, "binary_cross_entropy_with_logits", 4),
    ),
}
# The same for means of elementary functions of a difference.
_L1, _MSE = (_Kernel(_NN, "l1_loss", 2),), _KERNELS["MseLossBackward0"]
# Torch's numbers of the reductions.
_MEAN, _SUM = 1, 2
_ABOUT = 1.1


class Evaluated(NamedTuple):
    """A loss of one batch of an evaluation.

    Attributes:
        value: mean over the samples, [].
        predictions: what the loss function compared, [batch, ...]; for a cross-entropy, its logits.
        labels: what it compared them with.
        logarithms: whether autograd saves the logarithms of the softmax of the predictions.
    """

    value: Tensor
    predictions: Tensor
    labels: Tensor
    logarithms: bool


class EvaluatedLosses:
    """Finds the losses of evaluations that correspond to the loss of the training.

    If the training minimizes the mean of one loss function, the kernel of this function is replaced
    while an evaluation runs: from the first forward of the model without gradients to the next
    forward with gradients. Functions imported by name call it, too, and so do loss modules that
    were not used in training. It computes the same.

    Args:
        shield: guards the callbacks.
        record: called with each loss found.
        trains: called with the model before each of its forwards with gradients.
    """

    def __init__(
        self,
        shield: Shield,
        record: Callable[[Evaluated], object],
        trains: Callable[[nn.Module], object],
    ) -> None:
        def take(kernel: _Kernel, args: tuple[Any, ...], value: Any) -> None:
            if (found := _evaluated(kernel, args, value)) is not None:
                record(found)

        self._shield = shield
        self._trains = trains
        self._record = shield.guard("the loss of an evaluation", take)
        # The kernels of the loss of the last step; () if its evaluations would not be comparable.
        self._kernels: tuple[_Kernel, ...] = ()
        # Those of the losses of the current step, and their divisors.
        self._parts: list[tuple[tuple[_Kernel, ...], float]] = []
        # Whether a sum is divided by the number of its labels; None if not known yet.
        self._sum_is_mean: bool | None = None
        self._open = False
        self._thread = 0

    def goes_backward(self, node: Any) -> None:
        """Note a loss of a training step before its backward pass.

        Args:
            node: its autograd node, without the factor of a `GradScaler`; None if it includes the
                value of a loss module.
        """
        self.close()
        try:
            part = self._kernels_of(node)
        except RuntimeError:
            # The graph was freed by an earlier backward pass, as torch will say.
            part = (), 1.0
        self._parts.append(part)

    def stepped(self) -> None:
        """Note that all losses of a training step are known: their sum is the loss."""
        parts, self._parts = self._parts, []
        kernels, divisor = parts[0] if parts else ((), 1.0)
        # The sum over micro-batches is a mean if each is divided by their number.
        comparable = math.isclose(len(parts), divisor) and all(one == parts[0] for one in parts)
        self._kernels = kernels if comparable else ()

    def watch(self, model: nn.Module) -> RemovableHandle | None:
        """Look at the forwards of a trained model; None if others than Python may run them."""
        compiled = model._compiled_call_impl is not None or hasattr(model, "_orig_mod")
        if compiled or isinstance(model, (torch.jit.ScriptModule, nn.TransformerEncoderLayer)):
            return None
        begins = self._shield.guard(
            "the start of a forward", self._forward_begins, skip=torch.compiler.is_compiling
        )
        return model.register_forward_pre_hook(ModuleHook(begins, model))

    def _kernels_of(self, node: Any) -> tuple[tuple[_Kernel, ...], float]:
        """Return the kernels that may have computed a mean, and the number it is divided by."""
        divisor = 1.0
        while node is not None and node.name() in ("DivBackward0", "MulBackward0"):
            other = node._saved_other
            # A number on a GPU is not worth waiting for.
            if not isinstance(other, Tensor) or other.numel() != 1 or other.is_cuda or not other:
                return (), 1.0
            divisor *= float(other) if node.name() == "DivBackward0" else 1 / float(other)
            node = node.next_functions[0][0]
        if node is not None and node.name() == "MeanBackward0":
            return _kernels_of_mean(node), divisor
        kernels = () if node is None else _KERNELS.get(node.name(), ())
        weights = [getattr(node, f"_saved_{name}", None) for name in ("weight", "pos_weight")]
        if not kernels or any(one is not None for one in weights):
            return (), 1.0
        if node._saved_reduction == _MEAN:
            return kernels, divisor
        if node._saved_reduction != _SUM or kernels is not _NLL:
            return (), 1.0
        if self._sum_is_mean is None:
            self._sum_is_mean = _is_mean_of(divisor, node)
        return (kernels if self._sum_is_mean else ()), 1.0

    def _forward_begins(self, model: nn.Module, *_: Any) -> None:
        """Begin or stop observing losses at the start of a forward of the trained model."""
        if torch.is_grad_enabled():
            self.close()
            self._trains(model)
        elif self._kernels and not self._open and not _has_compiled():
            self._open = True
            self._thread = threading.get_ident()
            for kernel in self._kernels:
                setattr(kernel.owner, kernel.name, _replacement(kernel)[1])
                _observers[kernel] = self._called

    def close(self) -> None:
        """Stop observing losses until the next evaluation."""
        if self._open:
            self._open = False
            for kernel in [*_observers]:
                setattr(kernel.owner, kernel.name, _replacement(kernel)[0])
                del _observers[kernel]

    def _called(self, kernel: _Kernel, args: tuple[Any, ...], value: Any) -> None:
        """Record what a kernel has computed."""
        if not torch.is_grad_enabled() and threading.get_ident() == self._thread:
            self._record(kernel, args, value)


def _kernels_of_mean(node: Any) -> tuple[_Kernel, ...]:
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


def _is_mean_of(divisor: float, node: Any) -> bool:
    """Return whether a sum over the labels of a node is divided by about their number.

    Libraries also count a label that a shift by one leaves out.
    """
    # Autograd returns it without a sign.
    ignored = (node._saved_ignore_index + 2**63) % 2**64 - 2**63
    count = int((node._saved_target != ignored).sum())
    return count <= divisor <= _ABOUT * count


# What is called with the arguments and the value of each replaced kernel.
_observers: dict[_Kernel, Callable[[_Kernel, tuple[Any, ...], Any], None]] = {}


@cache
def _replacement(kernel: _Kernel) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a kernel and the function that replaces it in evaluations."""
    original = getattr(kernel.owner, kernel.name)

    @wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        observer = None if kwargs else _observers.get(kernel)
        if observer is not None:
            observer(kernel, args, value)
        return value

    # TorchScript knows the kernel by its identity.
    builtins._register_builtin(observed, builtins._find_builtin(original))
    return original, observed


def _evaluated(kernel: _Kernel, args: tuple[Any, ...], value: Any) -> Evaluated | None:
    """Return the loss that a kernel has computed; None if it is no mean and none follows.

    Args:
        kernel: the kernel.
        args: its arguments: predictions, labels, perhaps weights, the reduction and settings.
        value: its value.
    """
    predictions, labels, *weights = args[: kernel.reduction]
    reduction, *settings = args[kernel.reduction :]
    if any(one is not None for one in weights) or not isinstance(value, Tensor):
        return None
    counted = kernel in _NLL
    logits = kernel.name == "cross_entropy_loss"
    if counted and (labels.is_floating_point() or (logits and settings[1:] not in ([], [0.0]))):
        # Probabilities as labels, or smoothed labels.
        return None
    if reduction == _SUM and counted:
        value = value / (labels != settings[0]).sum().clamp(min=1)
    elif reduction == _SUM:
        value = value / max(predictions.numel(), labels.numel())
    elif reduction != _MEAN:
        return None
    return Evaluated(value, predictions, labels, logits)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything, which it would do again."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and bool(dynamo.utils.counters["frames"])
