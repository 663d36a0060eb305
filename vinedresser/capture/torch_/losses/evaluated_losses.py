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

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.losses.compared_losses import (
    NLL,
    Kernel,
    Part,
    Returned,
    are_divided_by_labels,
    are_shared,
    part_of,
)
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.module_calls import ModuleHook, Removable, can_be_hooked
from vinedresser.frameworks.torch_.nesting import leaves

__all__ = ["EvaluatedLosses", "Evaluated"]


# After this many steps that compute their loss alike, only some are looked at.
_OFTEN, _RARELY = 8, 16
# Torch's numbers of the reductions.
_MEAN, _SUM = 1, 2


class Evaluated(NamedTuple):
    """A loss of one batch of an evaluation.

    Attributes:
        value: mean over the samples, [].
        predictions: what the loss function compared, [batch, ...]; for a cross-entropy, its logits;
            None if the function is not known.
        labels: what it compared them with; None like these.
        logarithms: whether autograd saves the logarithms of the softmax of the predictions.
    """

    value: Tensor
    predictions: Tensor | None
    labels: Tensor | None
    logarithms: bool


class EvaluatedLosses:
    """Finds the losses of evaluations that correspond to the loss of the training.

    If the training minimizes a mean that its model returns, the loss of a forward without gradients
    is what the model returns there. Otherwise, if it minimizes the mean of one loss function, the
    kernel of this function is replaced while an evaluation runs: from the first forward of the
    model without gradients to the next forward with gradients. Functions imported by name call it,
    too, and so do loss modules that were not used in training. It computes the same.

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
        def take(kernel: Kernel, args: tuple[Any, ...], value: Any) -> None:
            if (found := _evaluated(kernel, args, value)) is not None:
                self._found(found)

        self._shield = shield
        self._trains = trains
        self._record = record
        self._take = shield.guard("the loss of an evaluation", take)
        self._ended = shield.guard("the end of a forward", self._forward_ended)
        # The kernels of the loss of the last step; () if its evaluations would not be comparable.
        self._kernels: tuple[Kernel, ...] = ()
        # The output of a model that was this loss; None if it was none or is no mean.
        self._returned: Returned | None = None
        # The losses of the current step, and whether they are looked at.
        self._parts: list[Part] = []
        self._looks = True
        # Number of steps since this has changed, or since the last evaluation.
        self._alike = 0
        # The scalar outputs of the models, by the sequence number of their autograd nodes.
        self._outputs: dict[int, Returned] = {}
        # Whether a sum is divided by the number of its labels; None if not known yet.
        self._sum_is_mean: bool | None = None
        # What was found inside the current forward of a model; None outside.
        self._inside: list[Evaluated] | None = None
        self._open = False
        self._thread = 0
        # Hooks that wait for the end of a forward, by model.
        self._ends: dict[int, Removable] = {}

    def goes_backward(self, node: Any) -> None:
        """Note a loss of a training step before its backward pass.

        Args:
            node: its autograd node, without the factor of a `GradScaler`; None if it includes the
                value of a loss module.
        """
        self.close()
        if not self._looks:
            return
        try:
            part = part_of(node, self._outputs, counts=self._sum_is_mean is None)
        except RuntimeError:
            # The graph was freed by an earlier backward pass, as torch will say.
            part = Part()
        self._parts.append(part)

    def stepped(self) -> None:
        """Note that all losses of a training step are known: their sum is the loss."""
        self._alike += 1
        if self._looks:
            before = (self._kernels, self._returned)
            self._look_at_parts()
            if (self._kernels, self._returned) != before:
                self._alike = 0
        self._looks = self._alike < _OFTEN or self._alike % _RARELY == 0

    def _look_at_parts(self) -> None:
        """Determine with what an evaluation can be compared."""
        parts, self._parts = self._parts, []
        self._outputs = {}
        self._kernels, self._returned = (), None
        if not parts:
            return
        first = parts[0]
        if any(part.returned != first.returned or part.share != first.share for part in parts):
            first = first._replace(returned=None)
        if not first.summed:
            self._kernels = first.kernels if are_shared(parts) else ()
            if first.mean and math.isclose(len(parts), first.share):
                self._returned = first.returned
        elif all(part.summed for part in parts):
            if self._sum_is_mean is None:
                self._sum_is_mean = are_divided_by_labels(parts)
            if self._sum_is_mean:
                self._kernels, self._returned = first.kernels, first.returned

    def watch(self, model: nn.Module) -> Removable | None:
        """Look at the forwards of a trained model; None if others than Python may run them."""
        if not can_be_hooked(model):
            return None
        begins = self._shield.guard(
            "the start of a forward", self._forward_begins, skip=torch.compiler.is_compiling
        )
        return model.register_forward_pre_hook(ModuleHook(begins, model))

    def _forward_begins(self, model: nn.Module, *_: Any) -> None:
        """Begin or stop observing losses at the start of a forward of the trained model."""
        self._stop_waiting(model)
        # A trace must not contain hooks.
        if torch._C._get_tracing_state() is not None:
            return
        if torch.is_grad_enabled():
            self.close()
            self._trains(model)
            if self._looks:
                self._wait(model)
        elif (self._kernels or self._returned) and not _has_compiled():
            self._observe()
            self._inside = []
            self._wait(model)

    def _wait(self, model: nn.Module) -> None:
        """Wait for the end of the current forward of a model."""
        self._ends[id(model)] = model.register_forward_hook(ModuleHook(self._ended, model))

    def _stop_waiting(self, model: nn.Module) -> None:
        """Remove the hook of a model's last forward, also if that has raised an error."""
        end = self._ends.pop(id(model), None)
        if end is not None:
            end.remove()

    def _observe(self) -> None:
        """Replace the kernels until the evaluation ends."""
        if not self._open:
            self._open = True
            self._thread = threading.get_ident()
            for kernel in self._kernels:
                setattr(kernel.owner, kernel.name, _replacement(kernel)[1])
                _observers[kernel] = self._called

    def _forward_ended(self, model: nn.Module, _: Any, output: Any) -> None:
        """Note the scalars that a model returns, or record the loss among them."""
        self._stop_waiting(model)
        with WithoutModes():
            if torch.is_grad_enabled():
                self._note_outputs(model, output)
            elif self._open and threading.get_ident() == self._thread:
                self._record_forward(model, output)

    def _note_outputs(self, model: nn.Module, output: Any) -> None:
        """Note which scalars with a gradient a model returns; the loss may be one of them."""
        if not self._looks or (isinstance(output, Tensor) and output.numel() > 1):
            # The most frequent cases.
            return
        for name, one in leaves(output):
            if one.numel() == 1 and one.grad_fn is not None:
                # By its number, since the node would keep the graph.
                self._outputs[one.grad_fn._sequence_nr()] = (id(model), name)

    def _record_forward(self, model: nn.Module, output: Any) -> None:
        """Record the loss that a forward without gradients returns, or those inside it."""
        inside, self._inside = self._inside or [], None
        owner, name = self._returned or (None, "")
        values = () if owner != id(model) else (one for key, one in leaves(output) if key == name)
        value = next((one for one in values if one.numel() == 1), None)
        if value is None:
            for one in inside:
                self._record(one)
            return
        compared = inside[0] if len(inside) == 1 else Evaluated(value, None, None, False)
        self._record(compared._replace(value=value.reshape(())))

    def _found(self, found: Evaluated) -> None:
        """Handle a loss of a kernel."""
        if self._inside is not None:
            self._inside.append(found)
        else:
            self._record(found)

    def forget(self) -> None:
        """Release the training."""
        self.close()
        while self._ends:
            self._ends.popitem()[1].remove()
        self.stepped()

    def close(self) -> None:
        """Stop observing losses until the next evaluation."""
        if self._open:
            self._open = False
            # Another loss may be trained from now on.
            self._looks, self._alike = True, 0
            for kernel in [*_observers]:
                setattr(kernel.owner, kernel.name, _replacement(kernel)[0])
                del _observers[kernel]

    def _called(self, kernel: Kernel, args: tuple[Any, ...], value: Any) -> None:
        """Record what a kernel has computed."""
        if not torch.is_grad_enabled() and threading.get_ident() == self._thread:
            self._take(kernel, args, value)


# What is called with the arguments and the value of each replaced kernel.
_observers: dict[Kernel, Callable[[Kernel, tuple[Any, ...], Any], None]] = {}


@cache
def _replacement(kernel: Kernel) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a kernel and the function that replaces it in evaluations."""
    original = getattr(kernel.owner, kernel.name)

    @wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        observer = _observers.get(kernel)
        # `F.kl_div` passes `log_target` by name.
        if observer is not None and kwargs.keys() <= {"log_target"}:
            observer(kernel, (*args, *kwargs.values()), value)
        return value

    # TorchScript knows the kernel by its identity.
    builtins._register_builtin(observed, builtins._find_builtin(original))
    return original, observed


def _evaluated(kernel: Kernel, args: tuple[Any, ...], value: Any) -> Evaluated | None:
    """Return the loss that a kernel has computed; None if it is no mean and none follows.

    Args:
        args: its arguments: predictions, labels, perhaps weights, the reduction and settings.
    """
    predictions, labels, *weights = args[: kernel.reduction]
    reduction, *settings = args[kernel.reduction :]
    if any(weight is not None for weight in weights) or not isinstance(value, Tensor):
        return None
    if reduction not in (_MEAN, _SUM):
        return None
    if kernel.name == "kl_div":
        total = value * predictions.numel() if reduction == _MEAN else value
        count = len(predictions) if kernel.kind == "per row" else predictions.numel()
        labels = labels.exp() if settings[:1] == [True] else labels
        return Evaluated(total / max(count, 1), predictions, labels, logarithms=False)
    logits = kernel.name == "cross_entropy_loss"
    if logits and settings[1:] not in ([], [0.0]):
        # Smoothed labels.
        return None
    if (kernel in NLL or kernel.kind == "soft") and labels.is_floating_point() != bool(kernel.kind):
        # Probabilities as labels, unless the training has such labels, too.
        return None
    if reduction == _SUM and kernel in NLL:
        value = value / (labels != settings[0]).sum().clamp(min=1)
    elif reduction == _SUM and kernel.kind == "soft":
        value = value * predictions.shape[min(1, predictions.ndim - 1)] / predictions.numel()
    elif reduction == _SUM:
        value = value / max(predictions.numel(), labels.numel())
    return Evaluated(value, predictions, labels, logits)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything, which it would do again."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and bool(dynamo.utils.counters["frames"])
