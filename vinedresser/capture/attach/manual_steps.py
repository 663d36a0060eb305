"""Detection of torch trainings whose loop updates the weights itself, without an optimizer."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vinedresser.capture.attach.attached_hook import AttachedHook
from vinedresser.capture.attach.torch_losses import TorchLosses
from vinedresser.capture.attach.torch_models import holders, in_modules
from vinedresser.capture.attach.variables import names_of_tensors
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.torch_.backward_end import BackwardEnd
from vinedresser.frameworks.torch_.bare_tensors import BareTensors
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop

# Number of updates that make a training: weights may be set once.
_UPDATES = 2
# Maximum number of backward passes in which updates are looked for.
_LOOKS = 1000
# Number of parameters, and of elements of each, that are compared.
_PARAMETERS, _ELEMENTS = 8, 16
_KERAS_TRAINER = "keras.src.backend.torch.trainer"
# Maximum number of nodes of a loss's graph that are visited.
_NODES = 100_000


class _Sample(NamedTuple):
    """Some elements of a parameter at an earlier time."""

    parameter: weakref.ref[Tensor]
    values: Tensor


class ManualSteps(LoopListener):
    """Finds models that a loop trains without an optimizer, and the ends of its steps.

    Before a backward pass, elements of the parameters that the loss depends on are compared with
    those before the previous one; if they have changed twice other than by `load_state_dict`, their
    modules are in training. A step ends at the first event after an update: a forward or backward
    pass, or `Module.zero_grad`. Of the steps before the detection, the losses are recorded, too.

    Args:
        losses: detects the losses.
        begin: returns the hook of a training of some models; called with the function to call
            before each of their forward passes.
    """

    def __init__(
        self,
        losses: TorchLosses,
        begin: Callable[[list[nn.Module], Callable[..., None]], AttachedHook],
    ) -> None:
        self._losses = losses
        self._begin = begin
        self._hook: AttachedHook | None = None
        self._looks = _LOOKS
        self._models: list[weakref.ref[nn.Module]] = []
        self._parameters: list[weakref.ref[Tensor]] = []
        self._samples: list[_Sample] = []
        # The losses of the updates seen before the training was found.
        self._early: list[Tensor | None] = []
        # Whether a backward pass has run in the current step.
        self._begun = False
        self._end_clearing: Callable[[], None] | None = None
        # Whether a state was loaded since the previous backward pass.
        self._loaded = False
        self._end_loading: Callable[[], None] | None = None
        self._backward_end: BackwardEnd | None = None

    def __bool__(self) -> bool:
        """Return whether a training was found."""
        return self._hook is not None

    def backward(self, tensors: Iterable[Any]) -> None:
        """Handle tensors before their backward pass and before their losses are noted."""
        if self._hook is not None:
            self._called()
        elif self._looks:
            self._looks -= 1
            self._look(tensors)
            if not self._looks:
                self._stop_looking()
        if self._hook is not None and self._backward_end is not None and self._hook.tensors_due():
            self._backward_end.begin(self._living)
        self._begun = True

    def _ended(self) -> None:
        """Handle the end of a backward pass: the loop may clear its gradients before its step."""
        if self._hook is not None:
            self._hook.keep_gradients()

    def finish(self) -> None:
        """End the last step of the training if it has updated the weights."""
        if self._hook is not None:
            # The training is over anyway.
            with suppress(TrainingStopped):
                self._called()

    def forget(self) -> None:
        """Release the training."""
        if self._end_clearing is not None:
            self._end_clearing()
        self._stop_looking()
        if self._backward_end is not None:
            self._backward_end.remove()
        self._hook = self._end_clearing = self._backward_end = None
        self._looks, self._begun = _LOOKS, False
        self._models, self._parameters, self._samples, self._early = [], [], [], []

    def _look(self, tensors: Iterable[Any]) -> None:
        """Look for updates since the previous backward pass."""
        if self._end_loading is None:
            self._end_loading = listen_to_loop(self, only=(LoopListener.weights_loaded,))
        loaded, self._loaded = self._loaded, False
        if loaded:
            # Checkpoints are compared, for instance.
            self._samples = []
            self._losses.take()
        if not any(sample.parameter() is not None for sample in self._samples):
            self._parameters = [weakref.ref(one) for one in _parameters_of(tensors)]
            self._early = []
            self._compare()
            return
        if not self._compare():
            return
        self._early.append(self._losses.take())
        if len(self._early) < _UPDATES:
            return
        self._looks = 0
        modules = self._trained()
        if modules:
            early, self._early = self._early, []
            self._models = [weakref.ref(module) for module in modules]
            self._hook = self._begin(modules, self._called)
            self._backward_end = BackwardEnd(self._losses.shield.guard("gradients", self._ended))
            only = (LoopListener.gradients_cleared,)
            self._end_clearing = listen_to_loop(self, only=only)
            for loss in early:
                self._losses.put(loss)
                self._end(past=True)

    def _trained(self) -> list[nn.Module]:
        """Return the modules of the parameters, or a stand-in if there are no modules."""
        living = self._living()
        if any(type(one) is nn.Parameter for one in living):
            modules = holders(living)
            if not any(map(_is_of_keras, modules)):
                return modules
            # An optimizer of Keras that a loop of torch calls; a `fit` is detected as such.
            tensors = {
                _plain(name): value
                for module in modules
                for name, value in module.named_parameters()
            }
            return [] if _fits() else [BareTensors(tensors)]
        # Beside a model, inputs may be optimized, such as adversarial examples.
        return [] if in_modules() else [BareTensors(names_of_tensors(living))]

    def weights_loaded(self, *_: Any) -> None:
        """See `LoopListener.weights_loaded`."""
        self._loaded = True

    def _stop_looking(self) -> None:
        end, self._end_loading = self._end_loading, None
        if end is not None:
            end()

    def _called(self, *_: Any) -> None:
        """End the step if the weights were updated since its backward pass."""
        if self._begun and torch._C._current_graph_task_id() == -1 and self._compare():
            self._end()

    def gradients_cleared(self, module: nn.Module) -> None:
        """End the step before the gradients of a trained model are cleared."""
        ids = {id(sample.parameter()) for sample in self._samples}
        if self._begun and not ids.isdisjoint(map(id, module.parameters())):
            self._compare()
            self._end()

    def _end(self, *, past: bool = False) -> None:
        """End the step, or one before the training was found."""
        self._begun = False
        if self._hook is None:
            return
        models = [one for reference in self._models if (one := reference()) is not None]
        training = torch.is_grad_enabled() and all(model.training for model in models)
        # If an evaluation begins, the loss still belongs to the training.
        with nullcontext() if training else self._hook.mode("train"):
            self._losses.step_begins(lambda: "loss", None, (), {})
        self._losses.step_ended()
        if self._backward_end is not None:
            self._backward_end.remove()
        self._hook.end_step(past=past)

    def _living(self) -> list[Tensor]:
        return [one for reference in self._parameters if (one := reference()) is not None]

    def _compare(self) -> bool:
        """Return whether sampled parameters differ from their samples; renew these."""
        changed = False
        for parameter, before in self._samples:
            value = parameter()
            changed = changed or (value is not None and not torch.equal(_elements(value), before))
        if changed or not self._samples:
            self._samples = _samples(self._living())
        return changed


def _parameters_of(tensors: Iterable[Any]) -> list[Tensor]:
    """Return the parameters that some losses depend on, or tensors if there are none."""
    nodes = [
        tensor.grad_fn
        for tensor in tensors
        if isinstance(tensor, Tensor) and tensor.grad_fn is not None
    ]
    seen = set(nodes)
    found: list[Tensor] = []
    while nodes and len(seen) < _NODES:
        node: Any = nodes.pop()
        variable = getattr(node, "variable", None)
        # Sharded parameters are of other types.
        if variable is not None and type(variable) in (nn.Parameter, Tensor):
            found.append(variable)
        after = {one for one, _ in node.next_functions if one is not None} - seen
        seen |= after
        nodes.extend(after)
    return [one for one in found if type(one) is nn.Parameter] or found


def _samples(parameters: list[Tensor]) -> list[_Sample]:
    usable = [
        parameter for parameter in parameters if parameter.is_contiguous() and parameter.numel()
    ]
    chosen = usable[:: max(1, len(usable) // _PARAMETERS)]
    return [_Sample(weakref.ref(one), _elements(one).clone()) for one in chosen]


def _elements(parameter: Tensor) -> Tensor:
    """Return elements of a contiguous parameter, evenly spaced."""
    return parameter.detach().view(-1)[:: max(1, parameter.numel() // _ELEMENTS)]


def _plain(name: str) -> str:
    """Return the path of a variable of Keras, such as "dense/kernel", as a name without dots."""
    return name.rpartition(".")[2].replace("/", "_")


def _is_of_keras(module: nn.Module) -> bool:
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__)


def _fits() -> bool:
    """Return whether a trainer of Keras runs the backward pass."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != _KERAS_TRAINER:
        frame = frame.f_back
    return frame is not None
