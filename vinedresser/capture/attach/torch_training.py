"""Detection of torch trainings: their models, optimizers and losses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.attach.manual_steps import ManualSteps
from vinedresser.capture.attach.torch_losses import TorchLosses
from vinedresser.capture.attach.torch_models import WatchedModels, holders, parameters
from vinedresser.capture.attach.torch_tracebacks import without_capture
from vinedresser.capture.attach.variables import names_of_tensors, variable
from vinedresser.capture.run.attachment import ATTACHMENT, Attachment
from vinedresser.capture.torch_.optimizers.remade_optimizers import MADE
from vinedresser.capture.torch_.optimizers.schedulers import NOTED
from vinedresser.capture.torch_.weights.loaded_weights import LOADED
from vinedresser.capture.torch_.worker_states import WORKERS
from vinedresser.frameworks.torch_.bare_tensors import BareTensors
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.module_calls import before_calls
from vinedresser.frameworks.torch_.optimizer_steps import Arguments

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

# Maximum number of steps in which models are searched while an optimizer has not stepped yet.
_SEARCH_STEPS = 1000
# From the creation of an optimizer on, the calls of modules, too.
_ALWAYS = (
    LoopListener.optimizer_made,
    LoopListener.backward_begins,
    LoopListener.loss_scaled,
    LoopListener.step_begins,
    LoopListener.step_ended,
)


class _TorchTrainings(TrainingFinder, LoopListener):
    """Watches the models that torch optimizers update.

    After the first optimizer was created, calls of modules are intercepted: the outermost module in
    training mode with parameters of an optimizer is watched before its first forward pass, and so
    are other such modules until each optimizer has taken a step. From then on, only optimizer steps
    and backward passes are intercepted.

    A model whose optimizer was created after steps of others begins another training, unless the
    optimizer replaces a deleted one of the same model.

    Args:
        attachment: opens and closes the hooks.
    """

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment, without_capture)
        # Number of steps before the last backward pass when an optimizer was created. Some
        # libraries create one for each parameter, in the first iteration.
        self._made: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        # Optimizers without a step, and optimizers without a known training.
        self._idle: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._unplaced: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        # The optimizer whose step is running, and its arguments.
        self._stepping: tuple[Optimizer, Any, Any] | None = None
        self._models = WatchedModels()
        self._losses = TorchLosses(attachment)
        self._manual = ManualSteps(self._losses, self._begin_manually)
        self._steps = self._steps_before = 0
        self._end_calls: Callable[[], None] | None = None

    def start(self) -> None:
        """See `Finder.start`."""
        guard = self._attachment.shield.guard
        self._ends = [listen_to_loop(self, guard, only=_ALWAYS)]
        self._finish = guard("the last step", self._manual.finish)
        if self._made:
            self._watch_calls()

    def end(self) -> None:
        """See `Finder.end`."""
        self._stop_watching_calls()
        self._finish()
        super().end()
        self._idle.update(self._made)
        self._unplaced.update(self._made)
        self._forget()

    def _watch_calls(self) -> None:
        if self._end_calls is None:
            guard = self._attachment.shield.guard
            self._end_calls = listen_to_loop(self, guard, only=(LoopListener.module_called,))

    def _stop_watching_calls(self) -> None:
        end, self._end_calls = self._end_calls, None
        if end is not None:
            end()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `LoopListener.optimizer_made`."""
        self._made.setdefault(optimizer, self._steps_before)
        self._idle.add(optimizer)
        self._unplaced.add(optimizer)
        self._watch_calls()

    def module_called(self, module: nn.Module) -> None:
        """See `LoopListener.module_called`."""
        if self._models.known(module) or not module.training or not torch.is_grad_enabled():
            return
        optimizers = self._optimizers_of(module)
        if optimizers and self._models.covers(module, optimizers):
            self._models.exclude(module)
        elif optimizers:
            self._found(module, optimizers)
        else:
            self._losses.consider(module)
            self._models.exclude(module)

    def _optimizers_of(self, module: nn.Module) -> list[Optimizer]:
        """Return the optimizers that update a module, in the order of their creation."""
        own = {id(parameter) for parameter in module.parameters()}
        return [one for one in self._made if not own.isdisjoint(map(id, parameters(one)))]

    def _found(self, module: nn.Module, optimizers: list[Optimizer]) -> None:
        """Watch a model."""
        hook = self._training_of(optimizers)
        together = [one for one in self._made if not self._made[one]]
        updated = [parameter for one in together for parameter in parameters(one)]
        holder = variable(optimizers[0]) if isinstance(module, BareTensors) else ""
        name = self._models.name(module, updated, holder)
        self._models.add(module, name, optimizers)
        self._unplaced.difference_update(optimizers)
        # Of several optimizers, the one created last usually steps last.
        leads = not together or together[-1] in optimizers
        before = {
            id(optimizer): set(optimizer._optimizer_step_pre_hooks) for optimizer in optimizers
        }
        hook.watch_trained(module, optimizers, name, leads=leads)
        self._losses.watch_model(module)
        self._catch_up(before)

    def _catch_up(self, before: dict[int, set[int]]) -> None:
        """Call the new step hooks of a model found during a running step, such as with a closure.

        Args:
            before: keys of the optimizers' hooks before the model was watched, by optimizer id.
        """
        if self._stepping is None or id(self._stepping[0]) not in before:
            return
        optimizer, args, kwargs = self._stepping
        for key, hook in list(optimizer._optimizer_step_pre_hooks.items()):
            if key not in before[id(optimizer)]:
                hook(optimizer, args, kwargs)

    def _training_of(self, optimizers: list[Optimizer]) -> AttachedHook:
        """Return the hook of the optimizers' training; begin one if necessary."""
        if self._hook is None or all(self._made[optimizer] for optimizer in optimizers):
            self._manual.finish()
            self._forget()
            self._losses.attach(self._attach_hook())
        assert self._hook is not None, "attached above, if not before"
        return self._hook

    def _forget(self) -> None:
        """Release a training; the next one has the optimizers without a step."""
        self._manual.forget()
        self._steps = self._steps_before = 0
        self._models = WatchedModels()
        self._losses.forget()
        for optimizer in list(self._made):
            # The others do not belong to the next training.
            self._made[optimizer] = 0 if optimizer in self._idle else _SEARCH_STEPS

    def loss_scaled(self, _: torch.amp.GradScaler) -> None:
        """See `LoopListener.loss_scaled`."""
        self._losses.scaled()

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """Handle losses before their backward pass; assign all optimizers first."""
        self._steps_before = self._steps
        if self._unplaced:
            self._place_all()
        if self._manual or not self._made:
            self._manual.backward(losses)
        self._losses.backward(losses)

    def _begin_manually(
        self, modules: list[nn.Module], before: Callable[..., None]
    ) -> AttachedHook:
        """Begin a training without an optimizer; return its hook.

        Args:
            modules: the trained models.
            before: called before each of their forward passes.
        """
        self._models = WatchedModels()
        hook = self._attach_hook()
        self._losses.attach(hook)
        updated = [parameter for one in modules for parameter in one.parameters()]
        guarded = self._attachment.shield.guard("the end of a step", before)
        for module in modules:
            name = self._models.name(module, updated)
            self._models.add(module, name, [])
            # Before the hook's own, so that the step ends before the forward.
            self._losses.keep(before_calls(module, guarded))
            hook.watch_trained(module, [], name, leads=True)
            self._losses.watch_model(module)
        # An optimizer that is made from now on begins another training.
        self._steps = self._steps_before = 1
        return hook

    def _place_all(self) -> None:
        """Find the trainings of optimizers whose models have not been called."""
        for optimizer in [one for one in self._made if one in self._unplaced]:
            self._unplaced.discard(optimizer)
            self._place(optimizer)

    def _place(self, optimizer: Optimizer) -> None:
        models = self._models.updated_by(optimizer)
        if models:
            if self._made[optimizer] and self._models.has_other_optimizer(models[0], optimizer):
                # The other may only wait for the garbage collection, as part of a cycle.
                gc.collect()
            if self._made[optimizer] and self._models.has_other_optimizer(models[0], optimizer):
                # Created late for a model whose other optimizer still exists: another training.
                self._found(models[0], [optimizer])
            else:
                self._models.add_optimizer(models[0], optimizer)
            return
        # Calls of a module that are compiled together with the loss are not visible.
        modules = holders(parameters(optimizer))
        for module in modules:
            self._found(module, [optimizer])
        # Beside a training, inputs may be optimized, such as adversarial examples.
        late = self._made[optimizer]
        alone = not self._models.in_training() if late else self._models.only_bare()
        if not modules and alone:
            self._found(BareTensors(names_of_tensors(parameters(optimizer))), [optimizer])

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        """See `LoopListener.step_begins`."""
        if self._manual:
            self._manual.finish()
            self._manual.forget()
        # Do not keep the optimizer alive.
        stepping = weakref.ref(optimizer)
        name = lambda: self._models.loss_name(stepping())  # noqa: E731
        changed = self._losses.step_begins(name, optimizer, args, kwargs)
        # With the closure that the hooks of models observe.
        self._stepping = optimizer, *(changed or (args, kwargs))
        return changed

    def step_ended(self, optimizer: Optimizer, *_: Any) -> None:
        """See `LoopListener.step_ended`."""
        self._stepping = None
        if optimizer not in self._made:
            # The optimizer was copied or unpickled.
            self.optimizer_made(optimizer)
        self._idle.discard(optimizer)
        self._steps += 1
        if self._end_calls is not None and (not self._idle or self._steps >= _SEARCH_STEPS):
            self._stop_watching_calls()
        self._losses.step_ended()
        # Not before the step, when torch iterates over the hooks that watching a model changes.
        if self._unplaced:
            self._place_all()


def attach() -> None:
    """Start looking for trainings."""
    NOTED.start()
    LOADED.start()
    MADE.start()
    WORKERS.start()
    ATTACHMENT.search(_TorchTrainings(ATTACHMENT))
