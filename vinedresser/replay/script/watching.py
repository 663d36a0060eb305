"""Running a recorded step inside a script: at the first call of the model, up to its update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vinedresser.capture.fetching import listen
from vinedresser.capture.torch_.losses.backward_listeners import listen_to_backwards
from vinedresser.capture.torch_.names import Names, unwrapped
from vinedresser.capture.torch_.optimizers.optimizer_steps import has_closure
from vinedresser.errors import VinedresserError
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.locating import locate_in
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore
from vinedresser.replay.script.fitting import NotAlike, fitted
from vinedresser.replay.script.losses import LossFunctions

__all__ = ["WHOSE", "ScriptStep"]

WHOSE = "the script"
"""Name of the script in messages."""


class ScriptStep:
    """Puts a recorded step in the place of the first step of a script.

    The script runs as it is until it calls the model for its first update. Then the model, its
    buffers and the random states get their recorded values, and so do the batch, where a
    `DataLoader` returns it, and the arguments of the model. `done` is called when the gradients
    are complete, before the optimizer uses them.

    Args:
        step: the recorded step.
        batches: its inputs, or some of their samples.
        locate: whether non-finite values are followed.
        done: called once, with this object; ends the process.
        failed: called with the reason if the step cannot be run; ends the process.

    Attributes:
        parts: the script's model, once it was seen.
        losses: what the script computes from its outputs.
        scan: follows non-finite values, if it was asked for.
        seen: what was seen so far, for messages.
    """

    def __init__(
        self,
        step: RecordedStep,
        batches: Sequence[Batch],
        done: Callable[[ScriptStep], None],
        failed: Callable[[str], NoReturn],
        *,
        locate: bool,
    ) -> None:
        self.parts = Parts({})
        self.losses = LossFunctions()
        self.scan: Any = None
        self.seen = "no model with the parameters of the snapshot was called for an update"
        self._name, self._recorded = next(iter(step.models.items()))
        self._step, self._batches, self._locate = step, batches, locate
        self._done, self._failed = done, failed
        self._scanning = ExitStack()
        self._optimizers = False
        # Number of calls in the step so far, and of backward passes; whether a batch was replaced.
        self._calls = self._backwards = 0
        self._loaded = False

    def start(self) -> None:
        """Begin to wait for the step."""
        original = _BaseDataLoaderIter.__next__

        @functools.wraps(original)
        def following(iterator: Any) -> Any:
            return self._following(original(iterator))

        _BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign, assignment]
        listen(nn.Module, "__call__", self._called)
        listen(Optimizer, "add_param_group", self._made)
        listen_to_backwards(self._backward)
        register_module_forward_pre_hook(self._before_loss)
        register_optimizer_step_pre_hook(self._before_update)
        self.losses.__enter__()  # type: ignore[no-untyped-call]

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
    def _model(self) -> nn.Module | None:
        return self.parts.models.get(self._name)

    def _made(self, _: Optimizer) -> None:
        self._optimizers = True

    def _called(self, module: nn.Module) -> None:
        """Look at a module that is about to be called."""
        if self._model is not None or not self._trains(module) or not self._fits(module):
            return
        self.seen = f"the model, a {type(unwrapped(module)).__name__}, was called, but not updated"
        self.parts.models[self._name] = module
        compiled = module._compiled_call_impl
        if compiled is None:
            module.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)
            module.register_forward_hook(self._after)
            return

        # A hook would be compiled with the model.
        def call(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self._before(module, args, kwargs) or (args, kwargs)
            output = compiled(*args, **kwargs)
            self._after(module, args, output)
            return output

        module._compiled_call_impl = call

    def _trains(self, module: nn.Module) -> bool:
        """Return whether a call may be one for an update."""
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return False
        return module.training == ("" not in self._recorded.in_eval)

    def _fits(self, module: nn.Module) -> bool:
        """Return whether a module has the parameters of the snapshot."""
        if any(map(is_lazy, module.parameters())):
            return False
        shapes = {name: one.shape for name, one in self._recorded.parameters.items()}
        names = Names(unwrapped(module)).parameters()
        return bool(names) and {one.path: one.value.shape for one in names} == shapes

    def _following(self, batch: Any) -> Any:
        """Return what a data loader returns: the recorded batch, if the step is the next."""
        place = self._calls % len(self._batches)
        recorded = self._batches[place].loaded
        if not self._optimizers or recorded is None or not torch.is_grad_enabled():
            return batch
        try:
            found = fitted(batch, recorded)
        except NotAlike:
            # Such as that of another loader.
            return batch
        self._loaded = True
        return found

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Return the recorded arguments for a call of the model."""
        self.losses.on = False
        if not self._trains(module):
            return None
        if self._calls == len(self._batches) and self._backwards:
            # The gradients of the step were not used, such as by a scaler.
            self._finish()
        try:
            if self._calls in (0, len(self._batches)):
                self._begin(module)
            batch = self._batches[self._calls]
            self._calls += 1
            if not self._loaded:
                self.losses.targets = batch.loss_args
            return fitted(tuple(args), batch.args), fitted(dict(kwargs), batch.kwargs)
        except NotAlike as error:
            self._failed(f"it calls the model with other arguments: {error}")
        except VinedresserError as error:
            self._failed(str(error))

    def _begin(self, module: nn.Module) -> None:
        """Put everything into the state at the beginning of the step."""
        self._scanning.close()
        self._calls = self._backwards = 0
        self.losses.clear()
        restore(self.parts, self._step, WHOSE)
        if self._locate:
            self.scan = self._scanning.enter_context(locate_in(self.parts, module))

    def _after(self, module: nn.Module, _: Any, output: Any) -> None:
        if self._calls and self._trains(module):
            self.losses.called(output)

    def _before_loss(self, module: nn.Module, args: Any) -> Any:
        """Return the recorded arguments for a loss module; None for other modules."""
        if not self.losses.on or module is self._model:
            return None
        made = self.losses.replaced(args, whole=True)
        return None if made is None else tuple(made)

    def _backward(self, tensors: Sequence[Any]) -> None:
        if self._calls and torch._C._current_graph_task_id() == -1:
            self._backwards += 1
            self.losses.take(list(tensors))

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Finish before the update; with a closure, after it has computed the gradients."""
        model = self._model
        ours = set(map(id, model.parameters())) if model is not None else set()
        if not any(id(one) in ours for group in optimizer.param_groups for one in group["params"]):
            return None
        if not has_closure(args, kwargs):
            if self._calls:
                self._finish()
            return None
        if kwargs.get("closure") is not None:
            return args, kwargs | {"closure": self._finishing(kwargs["closure"])}
        return (args[0], self._finishing(args[1]), *args[2:]), kwargs

    def _finishing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that finishes once it has computed gradients."""

        def computed() -> Any:
            loss = closure()
            if self._calls:
                self._finish()
            return loss

        return computed

    def _finish(self) -> None:
        self.losses.on = False
        self._scanning.close()
        self._done(self)
