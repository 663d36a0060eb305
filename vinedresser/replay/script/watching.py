"""Running a recorded step inside a script: at the first call of the model, up to its update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from vinedresser.errors import VinedresserError
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.modes import EachFunction
from vinedresser.frameworks.torch_.module_calls import CompiledCalls
from vinedresser.frameworks.torch_.names import unwrapped
from vinedresser.frameworks.torch_.nonfinite import all_finite
from vinedresser.frameworks.torch_.optimizer_steps import Arguments
from vinedresser.frameworks.torch_.optimizers import has_closure, with_closure
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore, restore_model
from vinedresser.replay.script.fitting import NotAlike, fitted
from vinedresser.replay.script.losses import LossFunctions
from vinedresser.replay.script.matching import Matching, trains

__all__ = ["WHOSE", "ScriptStep", "StepUser"]

WHOSE = "the script"
"""Name of the script in messages."""

# Updates with other calls of the model than those of the recorded one, before one is taken for it.
_MOST_TRIES = 3


class StepUser(Protocol):
    """What is done with a step of a script.

    Attributes:
        needs_all: whether the step begins only once all models of the snapshot were seen.
        widens: whether the step may run in a wider precision than the recorded one.
    """

    needs_all: bool
    widens: bool

    def within(self, watched: ScriptStep) -> AbstractContextManager[object]:
        """Return the context of a step, entered in its recorded state."""

    def done(self, watched: ScriptStep, optimizer: Optimizer | None) -> None:
        """Use complete gradients before an update, and end the process, or let the script go on.

        Args:
            optimizer: the optimizer that is about to use them; None if none did.
        """

    def failed(self, why: str) -> NoReturn:
        """End the process: the step cannot be run."""

    def prepared(self, batch: Batch) -> Batch:
        """Return inputs as the step needs them."""

    def begins(self, watched: ScriptStep) -> None:
        """Note the first call of the model in a step that follows the recorded one."""

    def joining(self, model: nn.Module) -> AbstractContextManager[object]:
        """Return the context of another model, first called in the step, until the step ends."""

    def passes(self, optimizer: Optimizer) -> None:
        """Note an update of other models only, after the recorded step."""

    def evaluates(self, optimizer: Optimizer) -> None:
        """Use gradients that a closure has computed again, in the same step of an optimizer."""


class ScriptStep(LoopListener):
    """Puts a recorded step in the place of the first step of a script.

    The script runs as it is until it calls the model for its first update. Then the model, its
    buffers and the random states get their recorded values, and so do the batch, where a
    `DataLoader` returns it, and the arguments of the model. The user gets the step when its
    gradients are complete, before the optimizer uses them. If that does not end the process, the
    script continues with its own steps.

    Other recorded models get their recorded values, too, at the beginning of the step or at their
    first call in it, and are not updated before the step is complete.

    Args:
        batches: its inputs, or some of their samples.
        user: uses the step.

    Attributes:
        parts: the script's models, once they were seen.
        losses: what the script computes from its outputs.
        optimizers: the optimizers that the script has made, in their order.
        seen: what was seen so far, for messages.
        steps: number of steps that are complete.
        finite: whether the gradients were finite after each backward pass of the step but the last.
        stale: there were gradients before the first backward pass of the latest step.
        alternates: there were updates of other models with gradients of their own, as in a GAN.
    """

    def __init__(self, step: RecordedStep, batches: Sequence[Batch], user: StepUser) -> None:
        self.parts = Parts({})
        self.losses = LossFunctions()
        self.optimizers: list[Optimizer] = []
        self.seen = "no model with the parameters of the snapshot was called for an update"
        self.steps = 0
        self.finite: list[bool] = []
        self.stale = self.alternates = False
        self._name, self._recorded = step.trained, step.models[step.trained]
        self._step, self._batches, self._user = step, batches, user
        self._matching = Matching(step)
        self._context = ExitStack()
        # Number of calls in the step so far, and of backward passes; whether a batch was replaced.
        self._calls = self._backwards = self._tries = 0
        self._loaded = False
        # Everything is in the state at the beginning of the step, before the first call.
        self._begun = False
        # The models that were updated since the latest backward pass.
        self._updated_since: set[str] = set()

    def start(self) -> None:
        """Begin to wait for the step."""
        listen_to_loop(self)
        register_module_forward_pre_hook(self._before_loss)
        EachFunction(self.losses.called_by_script).__enter__()  # type: ignore[no-untyped-call]

    @property
    def notes(self) -> list[str]:
        """What may make the step differ from the recorded one, in words."""
        wanted = len(self._step.batches)
        if self._calls != wanted:
            return [f"the script calls the model {self._calls} times, in the training {wanted}"]
        if self._loaded or self.losses.placed or self.losses.targets is None:
            return []
        return ["the targets of the loss were not recorded, or not found again in the script"]

    @property
    def model(self) -> nn.Module | None:
        """The model whose update was next, once it was seen."""
        return self.parts.models.get(self._name)

    def close(self) -> None:
        """Leave the context of the step."""
        self._context.close()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `LoopListener.optimizer_made`."""
        if not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)

    def module_called(self, module: nn.Module) -> None:
        """See `LoopListener.module_called`."""
        if len(self.parts.models) == len(self._step.models):
            return
        name = self._matching.name_of(module)
        if name is None or name in self.parts.models:
            return
        self.parts.models[name] = module
        if name == self._name:
            self._watch(module)
        elif self._calls:
            try:
                restore_model(module, self._step.models[name], WHOSE)
            except VinedresserError as error:
                self._user.failed(str(error))
            self._context.enter_context(self._user.joining(module))

    def _watch(self, module: nn.Module) -> None:
        """Take over the calls of the model whose update was next."""
        self.seen = f"the model, a {type(unwrapped(module)).__name__}, was called, but not updated"
        if module._compiled_call_impl is None:
            module.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)
            module.register_forward_hook(self._after)
        else:
            CompiledCalls(module, self._before, self._after)

    def batch_loaded(self, batch: Any) -> tuple[Any] | None:
        """Return what a data loader returns: the recorded batch, if the step is the next."""
        if self.steps:
            return (self._user.prepared(Batch((), {}, (), batch)).loaded,)
        recorded = self._batches[self._calls % len(self._batches)].loaded
        if not self.optimizers or recorded is None or not torch.is_grad_enabled():
            return None
        try:
            found = fitted(batch, recorded)
        except NotAlike:
            # Such as that of another loader.
            return None
        self._loaded = True
        return (self._user.prepared(Batch((), {}, (), found)).loaded,)

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Return the arguments for a call of the model: in the recorded step, those recorded."""
        self.losses.on = False
        waits = self._user.needs_all and len(self.parts.models) < len(self._step.models)
        if waits or not trains(module, self._recorded):
            return None
        trained = any(parameter.grad is not None for parameter in module.parameters())
        several = len(self._step.models) > 1
        if several and not self.steps and self._backwards and not trained:
            # The calls so far were for the updates of others: the gradients were cleared since.
            self._calls = 0
        # Later, the calls of a step may be those for the updates of others, too.
        whole = self._calls == len(self._batches) and not (several and self.steps)
        if whole and self._backwards and trained:
            # The gradients of the step were not used, such as by a scaler.
            self._finish(None)
        try:
            args, kwargs = self._arguments(tuple(args), dict(kwargs))
        except NotAlike as error:
            self._user.failed(f"it calls the model with other arguments: {error}")
        except VinedresserError as error:
            self._user.failed(str(error))
        ready = self._user.prepared(Batch(args, kwargs, (), None))
        return ready.args, ready.kwargs

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Begin a call of the model, and a step if it is the first one.

        Raises:
            NotAlike: the arguments are not like those recorded.
            VinedresserError: the state cannot be restored.
        """
        if self.steps:
            if not self._calls:
                self._user.begins(self)
            self._calls += 1
            return args, kwargs
        if self._calls == len(self._batches) or not (self._calls or self._begun):
            self._begin()
        batch = self._batches[self._calls]
        self._calls += 1
        if not self._loaded:
            self.losses.targets = batch.loss_args
        put = functools.partial(fitted, keep=self._user.needs_all, wider=self._user.widens)
        return put(args, batch.args), put(kwargs, batch.kwargs)

    def _begin(self) -> None:
        """Put everything into the state at the beginning of the step."""
        self._context.close()
        self._calls = self._backwards = 0
        self.finite = []
        self.losses.clear()
        seen = {name: self._step.models[name] for name in self.parts.models}
        restore(self.parts, replace(self._step, models=seen), WHOSE)
        self._context.enter_context(self._user.within(self))

    def _after(self, module: nn.Module, _: Any, output: Any) -> None:
        if self._calls and trains(module, self._recorded):
            self.losses.called(output)

    def _before_loss(self, module: nn.Module, args: Any) -> Any:
        """Return the recorded arguments for a loss module; None for other modules."""
        if not self.losses.on or any(module is model for model in self.parts.models.values()):
            return None
        made = self.losses.replaced(args, whole=True)
        return None if made is None else tuple(made)

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """See `LoopListener.backward_begins`."""
        if self._updated_since and self._name not in self._updated_since:
            self.alternates = True
        self._updated_since.clear()
        if self._calls:
            if self.model is not None:
                gradients = [
                    parameter.grad
                    for parameter in self.model.parameters()
                    if parameter.grad is not None
                ]
                if self._backwards:
                    self.finite.append(all_finite(gradients))
                else:
                    self.stale = any(bool(gradient.any()) for gradient in gradients)
            self._backwards += 1
            self.losses.take(list(losses))

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        """Finish before the update; with a closure, after it has computed the gradients."""
        if not has_closure(args, kwargs):
            found = {model for model in self.parts.models if self._updates(optimizer, model)}
            self._updated_since |= found
            if self._name in found:
                self._updated(optimizer)
            elif found and self.steps:
                self._user.passes(optimizer)
            elif found and self._calls:
                # Its model has the values after this update already, in which it takes no part.
                optimizer.zero_grad()
            return None
        # The closure may be the first to call the model.
        return with_closure(args, kwargs, functools.partial(self._finishing, optimizer))

    def _updates(self, optimizer: Optimizer, name: str) -> bool:
        """Return whether an optimizer has parameters of a model."""
        model = self.parts.models.get(name)
        ours = set() if model is None else set(map(id, model.parameters()))
        return any(id(one) in ours for group in optimizer.param_groups for one in group["params"])

    def _finishing(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that finishes once it has computed gradients for the first time."""
        first = True
        if not self.steps and self._user.needs_all and isinstance(optimizer, torch.optim.LBFGS):
            self._begin_ahead(optimizer, closure)

        @functools.wraps(closure)
        def computed() -> Any:
            nonlocal first
            loss = closure()
            if self._updates(optimizer, self._name):
                if first or not self.steps:
                    self._updated(optimizer)
                else:
                    self._user.evaluates(optimizer)
                    self._restart()
                first = False
            return loss

        return computed

    def _begin_ahead(self, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        """Begin the step before an optimizer that reads its state before it calls the closure.

        The closure is called once more, since it may be the first to call the model.
        """
        if not self._calls:
            closure()
        if self._calls and self._updates(optimizer, self._name):
            self._begin()
            self._begun = True

    def _updated(self, optimizer: Optimizer) -> None:
        """Finish the step, unless another update of the model is the one that was recorded.

        A script with several models may call one of them for the updates of others. Its calls
        before the first update are then fewer than those before the following ones.
        """
        several = len(self._step.models) > 1 and not self.steps
        if several and 0 < self._calls != len(self._batches) and self._tries < _MOST_TRIES:
            self._tries += 1
            self._calls = self._backwards = 0
            self._context.close()
            self.losses.clear()
        elif self._calls:
            self._finish(optimizer)

    def _finish(self, optimizer: Optimizer | None) -> None:
        """Use the step; the script then continues with its own steps."""
        self.losses.on = False
        try:
            self._user.done(self, optimizer)
        except VinedresserError as error:
            self._user.failed(str(error))
        self.steps += 1
        self._restart()

    def _restart(self) -> None:
        """Wait for the calls that follow."""
        self._calls = self._backwards = 0
        self.losses.restart()
