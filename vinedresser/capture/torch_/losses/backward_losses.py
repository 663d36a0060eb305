"""Losses of a torch training that are found at their backward passes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.adapters.training_setup import function_setup
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.losses.action_values import compares_actions
from vinedresser.capture.torch_.losses.compared_losses import multiples
from vinedresser.capture.torch_.losses.evaluated_losses import Evaluated, EvaluatedLosses
from vinedresser.capture.torch_.losses.losses import is_loss
from vinedresser.capture.torch_.losses.policy_gradients import PolicyGradients
from vinedresser.capture.torch_.losses.several_forwards import Paired, inputs_of_several
from vinedresser.capture.torch_.optimizers.closures import observed
from vinedresser.capture.torch_.plain_steps import compares_numbers, sequence_length
from vinedresser.frameworks.torch_.losses.loss_graphs import loss_inputs
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.module_calls import NextOutput, Removable
from vinedresser.frameworks.torch_.names import MethodAsForward
from vinedresser.frameworks.torch_.optimizers import has_closure
from vinedresser.store.records import POLICY_GRADIENT

__all__ = ["POLICY_STEPS", "BackwardLosses", "LossRecorder", "LossSink"]

# Steps in which a loss may turn out to be a policy gradient: the signs of its factors vary.
POLICY_STEPS = 8

# Records the value of a loss and the arguments of the loss function.
LossRecorder = Callable[[Any, tuple[Any, ...]], None]


class LossSink(Protocol):
    """Records the losses that are found."""

    def comparisons_due(self) -> bool:
        """Return whether predictions or labels are due now."""

    def loss_inputs_due(self, *, several: bool = False) -> Recording | None:
        """Return where predictions or labels of a loss are due; see `InputTaker.inputs_due`."""

    def loss_recorder(self, name: str) -> LossRecorder:
        """Return a function that records a value of a loss and its function's arguments."""

    def know_loss_function(self, name: str, setup: dict[str, Any]) -> None:
        """Note which function a loss is computed by; see `RunRecord.losses`.

        Args:
            setup: see `function_setup`.
        """

    def record_loss_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool
    ) -> None:
        """Record what a loss function compared; see `InputTaker.record_inputs`."""


class BackwardLosses:
    """Finds the losses that a training minimizes, by their backward passes.

    Scalars with a backward pass are summed until the next step of an optimizer; the sum is the loss
    whose gradient the optimizer receives. The factor of a `torch.amp.GradScaler` is divided out.
    Predictions and labels of loss functions are those of the first backward pass.

    Args:
        shield: guards the callbacks.

    Attributes:
        sink: records the losses; None if there is no training.
    """

    def __init__(self, shield: Shield) -> None:
        self.sink: LossSink | None = None
        self.shield = shield
        self._handles: list[Removable] = []
        self._recorders: dict[str, LossRecorder] = {}
        # The latest values that are recorded otherwise, and what the latest backward pass began
        # with.
        self._values: list[weakref.ref[torch.Tensor]] = []
        self._last: list[weakref.ref[torch.Tensor]] = []
        self._scaled = False
        # The sum of the losses that are not recorded yet.
        self._pending: torch.Tensor | None = None
        # What the function of the first of them compared, and where it is due.
        self._inputs: tuple[Recording, Paired] | None = None
        # Whether that is recorded otherwise, with what its function compared.
        self._otherwise = False
        # Whether another loss of the step is not known to be negated: an attack that raises a loss
        # comes before the training that lowers it.
        self._lowered = False
        self._policy = PolicyGradients()
        # Names of policy gradients, whatever else is in their sums, such as the error of a critic.
        self._policies: set[str] = set()
        # Whether a loss of the step compares values of chosen actions.
        self._actions = False
        # Number of recorded sums.
        self._recorded = 0

        def returned(_: nn.Module, __: Any, output: Any) -> None:
            with WithoutModes():
                mark_outputs(output)

        self._outputs = NextOutput(shield.guard("outputs", returned))
        self._evaluated = EvaluatedLosses(shield, self._record_evaluated, self._await_output)
        # The name of the latest recorded sum.
        self._trained = ""
        self._name: Callable[[], str] = str
        # With a closure, backward passes run in the optimizer's step; only those of its first
        # evaluation count.
        self._awaited = self._over = False
        # Whether a loss of the step is recorded otherwise.
        self._told = False
        # A parameter, its gradient before the step and the version of that, if there was a loss.
        self._earlier: tuple[torch.Tensor, torch.Tensor, int] | None = None

    def forget(self) -> None:
        """Release the training."""
        self.sink = None
        self._outputs.remove()
        while self._handles:
            self._handles.pop().remove()
        self._evaluated.forget()
        self._values.clear()
        self._recorders.clear()
        self._trained = ""
        self._pending = self._inputs = None
        self._recorded = 0
        self._policy = PolicyGradients()
        self._policies.clear()

    def watch_model(self, model: nn.Module) -> None:
        """Look for the losses of a model's evaluations."""
        handle = self._evaluated.watch(model)
        if handle is not None:
            self._handles.append(handle)

    def _await_output(self, model: nn.Module) -> None:
        """Mark the outputs of a forward if predictions may be due."""
        if self.sink is None or not self.sink.comparisons_due():
            return
        forwards = model.forwards() if isinstance(model, MethodAsForward) else (model,)
        self._outputs.wait(forwards)

    def scaled(self) -> None:
        """Handle a call of `GradScaler.scale`."""
        self._scaled = True

    def reported(self, value: torch.Tensor) -> None:
        """Note a loss that is recorded otherwise."""
        self._values = [*self._values[-3:], weakref.ref(value)]
        self._told = True

    def backward(self, tensors: Iterable[Any]) -> None:
        """Handle tensors before their backward pass."""
        scaled, self._scaled = self._scaled, False
        losses = [tensor for tensor in tensors if is_loss(tensor)]
        fresh = [one for one in losses if not any(last() is one for last in self._last)]
        if not fresh:
            return
        self._last = [weakref.ref(one) for one in losses]
        if self._over or self._is_elsewhere():
            return
        for loss in fresh:
            self._add(loss, scaled=scaled)

    def _add(self, loss: torch.Tensor, *, scaled: bool) -> None:
        """Add a loss to the pending sum unless it is recorded otherwise."""
        if self._recorded < POLICY_STEPS:
            self._actions = self._actions or compares_actions(loss)
        values = [one for reference in self._values if (one := reference()) is not None]
        if any(one is loss for one in values):
            return
        value, origin = loss.detach().reshape(()), loss.grad_fn
        factor = getattr(origin, "_saved_other", None) if scaled else None
        if origin is not None and factor is not None and factor.numel() == 1:
            # Undo the multiplication by the scaler.
            value, origin = value / factor.reshape(()), origin.next_functions[0][0]
        # Libraries divide it by the number of micro-batches.
        if values and any(one.grad_fn is node for node in multiples(origin) for one in values):
            return
        before = self._pending
        self._evaluated.goes_backward(None if values else origin)
        compared = self._compared(loss, first=before is None)
        found = None if compared is None else compared[1].inputs
        if self._recorded < POLICY_STEPS:
            self._policy.add(loss)
        if before is None:
            self._inputs = compared
            self._otherwise, self._lowered = bool(values), False
        elif found is None or not found.negated:
            self._lowered = True
        self._pending = value if before is None else before + value.to(before.device)

    def _compared(self, loss: torch.Tensor, *, first: bool) -> tuple[Recording, Paired] | None:
        """Return what a loss compared and where it is due; None if nothing is.

        Args:
            first: whether it is the first one since the last step of an optimizer.
        """
        if self.sink is None:
            return None
        due = self.sink.loss_inputs_due()
        if due is not None:
            found = loss_inputs(loss, sequence_length(due))
            return None if found is None else (due, Paired(found, first=True))
        due = self.sink.loss_inputs_due(several=True) if first else None
        several = None if due is None else inputs_of_several(loss, numbers=compares_numbers(due))
        return None if due is None or several is None else (due, several)

    def look(self, tensors: Iterable[Any]) -> None:
        """Look only whether the tensors of a backward pass are losses of an agent."""
        for loss in filter(is_loss, tensors):
            self._policy.add(loss)
            self._actions = self._actions or compares_actions(loss)

    def take_agent(self) -> tuple[bool, bool]:
        """Forget the step.

        Returns:
            Whether its losses are policy gradients, and whether one of them compares the values of
            chosen actions.
        """
        self.take()
        actions, self._actions = self._actions, False
        return self._policy.take(), actions

    def step_begins(
        self, name: Callable[[], str], optimizer: Optimizer | None, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Record the losses of the step that an optimizer is about to take.

        Those of a closure are recorded after its first evaluation, together with those of the
        micro-batches before the step.

        Args:
            name: returns the name of the loss that it minimizes.
            optimizer: the optimizer; None in a loop without one.
            args: positional arguments of the step; args[0] is the optimizer.

        Returns:
            Other arguments for the step; None for the same.
        """
        self._name = name
        self._awaited, self._over = has_closure(args, kwargs), False
        if not self._awaited:
            self._record()
            return None
        self._earlier = None if self._pending is None else _gradient_of(optimizer)
        ended = self.shield.guard("the loss of a closure", self._evaluated_once)
        return observed(args, kwargs, ended)

    def step_ended(self) -> None:
        """Note the end of an optimizer's step."""
        if self._awaited and self._pending is not None:
            # It has not evaluated its closure.
            self._record()
        self._awaited = self._over = self._told = False
        self._earlier = None

    def _evaluated_once(self, result: Any) -> None:
        """Record the losses of a step after the first evaluation of its closure.

        Args:
            result: what the closure returned: its loss, also if the optimizer needs no gradient.
        """
        if not self._awaited:
            return
        self._awaited, self._over, self._earlier = False, True, None
        with torch.enable_grad():
            if self._pending is None and not self._told:
                self._pending = _number(result)
            self._record()

    def _is_elsewhere(self) -> bool:
        """Return whether a closure has cleared the gradients of the losses before the step.

        It computes them again at other weights (sharpness-aware minimization), where its loss is
        not that of the training.
        """
        if not self._awaited or self._earlier is None:
            return False
        parameter, gradient, version = self._earlier
        return parameter.grad is not gradient or gradient._version != version

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
        policy = self._policy.take()
        actions, self._actions = self._actions, False
        self._recorded += 1
        if self.sink is None:
            return
        if total is None:
            if actions:
                self.sink.know_loss_function(self._name(), function_setup("", actions=True))
            return
        name = self._trained = self._name()
        self._recorder(name)(total, ())
        if policy:
            self._policies.add(name)
            self.sink.know_loss_function(name, function_setup(POLICY_GRADIENT))
        if name in self._policies:
            return
        if actions and inputs is None:
            self.sink.know_loss_function(name, function_setup("", actions=True))
        if inputs is not None:
            recording, (found, first) = inputs
            negated = found.negated and not self._lowered
            if not self._otherwise or negated:
                setup = function_setup(
                    found.function,
                    negated=negated,
                    activation=found.activation,
                    settings=found.settings,
                    actions=actions,
                )
                self.sink.know_loss_function(name, setup)
            if not self._otherwise:
                compared = found.predictions, found.labels
                self.sink.record_loss_inputs(recording, name, compared, paired=first)

    def _record_evaluated(self, found: Evaluated) -> None:
        """Record a loss of an evaluation under the name of the loss in training."""
        # Of adversarial models, each with a loss, it may be that of any.
        if self.sink is None or [*self._recorders] != [self._trained]:
            return
        predictions = found.predictions
        if predictions is None:
            self._recorder(self._trained)(found.value, ())
            return
        if found.logarithms and self.sink.loss_inputs_due() is not None:
            # As autograd saves them in training.
            predictions = predictions.log_softmax(min(1, predictions.ndim - 1))
        self._recorder(self._trained)(found.value, (predictions, found.labels))

    def _recorder(self, name: str) -> LossRecorder:
        """Return what records a loss that is found here."""
        assert self.sink is not None, "losses are recorded in trainings only"
        if name not in self._recorders:
            self._recorders[name] = self.sink.loss_recorder(name)
        return self._recorders[name]


def _gradient_of(optimizer: Optimizer | None) -> tuple[torch.Tensor, torch.Tensor, int] | None:
    """Return a parameter with a gradient, its gradient and the version; None: there is none."""
    for group in () if optimizer is None else optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None:
                return one, one.grad, one.grad._version
    return None


def _number(result: Any) -> torch.Tensor | None:
    """Return a number as a tensor [] without a gradient; None for all else."""
    if isinstance(result, torch.Tensor):
        real = result.numel() == 1 and result.is_floating_point()
        return result.detach().reshape(()) if real else None
    return torch.tensor(result) if isinstance(result, float) else None
