"""Detection of the losses of a torch training."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from vinedresser.capture.attach.evaluated_losses import Evaluated, EvaluatedLosses
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.run.attachment import Attachment
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.calls import ModuleHook, Removable
from vinedresser.capture.torch_.loss_graphs import LossInputs, loss_inputs
from vinedresser.capture.torch_.nesting import leaves
from vinedresser.capture.torch_.setup import described_loss

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["TorchLosses", "listen_to_backwards"]

# Maximum number of outputs of models that are kept until a backward pass.
_MOST_OUTPUTS = 16


class TorchLosses:
    """Detects loss modules by their output and other losses by their backward pass.

    A module outside the models that returns a scalar with a gradient is a loss module: its values
    are recorded under its class name, also in evaluations. Other scalars with a backward pass are
    summed until the next step; the sum is the loss whose gradient the optimizer receives. The
    factor of a `torch.amp.GradScaler` is divided out. Predictions and labels of loss functions are
    those of the first backward pass.

    Args:
        attachment: provides the shield.

    Attributes:
        hook: records the losses; None if there is no training.
    """

    def __init__(self, attachment: Attachment) -> None:
        self.hook: AttachedHook | None = None
        self._attachment = attachment
        self._handles: list[Removable] = []
        self._names: set[str] = set()
        self._recorders: dict[str, Callable[[Any, tuple[Any, ...]], None]] = {}
        # The latest values of loss modules, and the tensors of the latest backward pass.
        self._values: list[weakref.ref[torch.Tensor]] = []
        self._last: list[weakref.ref[torch.Tensor]] = []
        self._scaled = False
        # The sum of the losses that are not recorded yet.
        self._pending: torch.Tensor | None = None
        # What the function of the first of them compared, and where it is due.
        self._inputs: tuple[Recording, LossInputs] | None = None
        # Whether a loss module computed that, and has recorded what it compared.
        self._of_module = False
        # Whether another loss of the step is not known to be negated: an attack that raises a loss
        # comes before the training that lowers it.
        self._lowered = False
        # Outputs of the model in a step in which predictions may be due.
        self._outputs: list[torch.Tensor] = []
        self._output: Removable | None = None
        self._evaluated = EvaluatedLosses(
            attachment.shield, self._record_evaluated, self._await_output
        )
        # The name of the latest recorded sum.
        self._trained = ""
        self._name: Callable[[], str] = str
        # With a closure, the backward pass runs in the optimizer's step; only the first one counts.
        self._awaited = self._over = False

    @property
    def shield(self) -> Shield:
        """Guards the callbacks."""
        return self._attachment.shield

    def forget(self) -> None:
        """Release the training."""
        self.hook = None
        self._outputs.clear()
        if self._output is not None:
            self._output.remove()
        while self._handles:
            self._handles.pop().remove()
        self._evaluated.close()
        self._evaluated.stepped()
        self._names.clear()
        self._values.clear()
        self._recorders.clear()
        self._trained = ""
        self._pending = self._inputs = None

    def watch_model(self, model: nn.Module) -> None:
        """Look for the losses of a model's evaluations."""
        handle = self._evaluated.watch(model)
        if handle is not None:
            self._handles.append(handle)

    def keep(self, handle: Removable) -> None:
        """Remove a hook when the training is released."""
        self._handles.append(handle)

    def _await_output(self, model: nn.Module) -> None:
        """Keep the outputs of a forward until the backward pass if predictions may be due."""
        if self.hook is None or not self.hook.tensors_due() or len(self._outputs) >= _MOST_OUTPUTS:
            return

        def returned(_: nn.Module, __: Any, output: Any) -> None:
            handle.remove()
            self._outputs.extend(one for _, one in leaves(output) if one.requires_grad)

        guarded = self.shield.guard("outputs", returned)
        handle = self._output = model.register_forward_hook(ModuleHook(guarded, model))

    def consider(self, module: nn.Module) -> None:
        """Check the output of a module's next call for a loss."""

        def look(module: nn.Module, args: Any, output: Any) -> None:
            handle.remove()
            if self.hook is not None and _is_loss(output):
                self._watch(module)(module, args, output)

        guarded = self.shield.guard("looking for a loss", look)
        handle = module.register_forward_hook(ModuleHook(guarded, module))

    def scaled(self, _: torch.amp.GradScaler) -> None:
        """Handle a call of `GradScaler.scale`."""
        self._scaled = True

    def backward(self, tensors: Iterable[Any]) -> None:
        """Handle tensors before their backward pass."""
        scaled, self._scaled = self._scaled, False
        losses = [one for one in tensors if _is_loss(one)]
        fresh = [one for one in losses if not any(last() is one for last in self._last)]
        if not fresh:
            return
        self._last = [weakref.ref(one) for one in losses]
        if self._over:
            return
        for loss in fresh:
            self._add(loss, scaled=scaled)
        self._outputs.clear()
        if self._awaited and self._pending is not None:
            self._awaited, self._over = False, True
            self._record()

    def _add(self, loss: torch.Tensor, *, scaled: bool) -> None:
        """Add a loss to the pending sum unless it is the value of a loss module."""
        values = [one for reference in self._values if (one := reference()) is not None]
        if any(one is loss for one in values):
            return
        value, origin = loss.detach().reshape(()), loss.grad_fn
        factor = getattr(origin, "_saved_other", None) if scaled else None
        if origin is not None and factor is not None and factor.numel() == 1:
            # Undo the multiplication by the scaler.
            value, origin = value / factor.reshape(()), origin.next_functions[0][0]
            if any(one.grad_fn is origin for one in values):
                return
        before = self._pending
        self._evaluated.goes_backward(None if values else origin)
        due = None if self.hook is None else self.hook.loss_inputs_due()
        found = None if due is None else loss_inputs(loss, self._outputs)
        if before is None:
            self._inputs = None if due is None or found is None else (due, found)
            self._of_module, self._lowered = bool(values), False
        elif found is None or not found.negated:
            self._lowered = True
        self._pending = value if before is None else before + value.to(before.device)

    def step_begins(self, name: Callable[[], str], *, closure: bool) -> None:
        """Record the losses of the step that an optimizer is about to take.

        Args:
            name: returns the name of the loss that it minimizes.
            closure: whether the backward pass runs inside the step.
        """
        self._name = name
        self._awaited = closure
        if not closure:
            self._record()

    def step_ended(self) -> None:
        """Note the end of an optimizer's step."""
        self._awaited = self._over = False

    def take(self) -> torch.Tensor | None:
        """Return the sum [] of the losses that are not recorded yet, and forget it; None: none."""
        total, self._pending = self._pending, None
        self._evaluated.stepped()
        return total

    def put(self, total: torch.Tensor | None) -> None:
        """Set what `take` returned."""
        self._pending = total

    def _record(self) -> None:
        """Record the pending sum."""
        total = self.take()
        inputs, self._inputs = self._inputs, None
        if total is None or self.hook is None:
            return
        name = self._trained = self._name()
        self._recorder(name)(total, ())
        if inputs is not None:
            recording, found = inputs
            negated = found.negated and not self._lowered
            if not self._of_module or negated:
                self.hook.know_loss_function(
                    name, found.function, negated=negated, activation=found.activation
                )
            if not self._of_module:
                self.hook.record_loss_inputs(recording, name, (found.predictions, found.labels))

    def _record_evaluated(self, found: Evaluated) -> None:
        """Record a loss of an evaluation under the name of the loss in training."""
        # Of adversarial models, each with a loss, it may be that of any.
        if self.hook is None or [*self._recorders] != [self._trained]:
            return
        predictions = found.predictions
        if found.logarithms and self.hook.loss_inputs_due() is not None:
            # As autograd saves them in training.
            predictions = predictions.log_softmax(min(1, predictions.ndim - 1))
        self._recorder(self._trained)(found.value, (predictions, found.labels))

    def _recorder(self, name: str) -> Callable[[Any, tuple[Any, ...]], None]:
        """Return what records a loss that is not that of a module."""
        assert self.hook is not None, "losses are recorded in trainings only"
        if name not in self._recorders:
            self._recorders[name] = self.hook.loss_recorder(name)
        return self._recorders[name]

    def _watch(self, module: nn.Module) -> Callable[..., None]:
        """Watch a loss module and return its forward hook."""
        name = type(module).__name__
        while name in self._names:
            name += "'"
        self._names.add(name)
        assert self.hook is not None, "losses are detected in trainings only"
        record = self.hook.loss_recorder(name, described_loss(module))

        def returned(_: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                self._values = [*self._values[-3:], weakref.ref(output)]
                record(output, args)

        skip = torch.compiler.is_compiling
        guarded = self.shield.guard("the loss", returned, skip=skip)
        self._handles.append(module.register_forward_hook(ModuleHook(guarded, module)))
        return guarded


def _is_loss(value: Any) -> bool:
    """Return whether a value is a real scalar with a gradient."""
    return (
        isinstance(value, torch.Tensor)
        and value.numel() == 1
        and value.is_floating_point()
        and value.requires_grad
    )


def listen_to_backwards(listener: Callable[[Sequence[Any]], object]) -> Callable[[], None]:
    """Call a listener before each `torch.autograd.backward` and `Tensor.backward`.

    A wrapper around these would add a frame to the traceback of every error. The helper that torch
    calls for the initial gradients is wrapped instead; it returns before the backward pass begins.

    Args:
        listener: receives the tensors; must not raise.

    Returns:
        A function that removes the listener.
    """
    namespace: Any = torch.autograd
    original = namespace._make_grads

    def make_grads(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        # `torch.autograd.grad` calls it, too.
        if sys._getframe(1).f_code.co_name == "backward":
            listener(tensors)
        return original(tensors, *args, **kwargs)

    def end() -> None:
        if namespace._make_grads is make_grads:
            namespace._make_grads = original

    namespace._make_grads = make_grads
    return end
