"""Capturing parameters, gradients, buffers and optimizer state of a torch model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.config.capture_config import NOTHING, Ask, Due
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.torch_copier import Keep, TorchCopier
from vinedresser.capture.torch_.optimizers.optimizer_state import (
    hyperparameters,
    kept_of,
    scheduler_count,
    scheduler_steps,
    slots,
)
from vinedresser.capture.torch_.optimizers.schedulers import Schedulers
from vinedresser.capture.torch_.optimizers.updates import Updates
from vinedresser.frameworks.torch_.names import NamedParameter, Names
from vinedresser.frameworks.torch_.optimizers import updated

_KeepAll = Callable[[Recording, list[tuple[str, Tensor, Ask]]], object]

_WEIGHTS = ("weights", "biases")
_GRADIENTS = ("gradients", "weight_taylor")
# Maximum number of elements of gradients that are copied after a backward pass.
_MOST_KEPT = 2**24


class ModelState:
    """Captures the state of a model and its optimizers.

    Args:
        names: names of the model's tensors.
        copier: copies single numbers.
        keep: shielded `TorchCopier.keep_parameter`.
        keep_all: shielded `TorchCopier.keep_parameters`.
    """

    def __init__(self, names: Names, copier: TorchCopier, keep: Keep, keep_all: _KeepAll) -> None:
        self._names = names
        self._copier = copier
        self._keep = keep
        self._keep_all = keep_all
        self._updates = Updates(copier, keep)
        self._schedulers = Schedulers()
        # The `Due` and the number of slots for which none of an optimizer's slots were asked for.
        self._unasked: weakref.WeakKeyDictionary[Optimizer, tuple[Due, int]] = (
            weakref.WeakKeyDictionary()
        )
        # The latest list of parameters and its recording; weights may be tied or added later.
        self._listed: tuple[weakref.ref[Recording] | None, list[NamedParameter]] = (None, [])
        # Gradients at the end of the latest backward pass, by id of the parameter.
        self._passed: dict[int, Tensor] = {}

    def take_weights(self, recording: Recording) -> None:
        """Capture all parameters."""
        if _reaches(recording, _WEIGHTS):
            self._take_weights(recording, self._names.parameters())

    def take_update(
        self,
        recording: Recording,
        optimizer: Optimizer,
        groups: Callable[[], int],
        *,
        gradients: bool,
    ) -> None:
        """Capture parameters, gradients and optimizer state before an optimizer's step.

        Args:
            recording: receives them.
            groups: return the number of parameter groups of the optimizers before it.
            gradients: whether the gradients are computed already.
        """
        self._copier.live.begin_step(optimizer)
        if _reaches(recording, (*_WEIGHTS, *_GRADIENTS, "updates", "optimizer_state")):
            parameters = self._parameters(recording)
            ids = updated([optimizer])
            owned = [parameter for parameter in parameters if id(parameter.value) in ids]
            self._take_weights(recording, owned)
            self._take_optimizer(recording, optimizer, groups, owned)
            if gradients:
                self._take_consumed(recording, optimizer, owned)
            if recording.due.reaches("updates"):
                self._updates.begin(recording, optimizer, owned)

    def take_change(self, recording: Recording, optimizer: Optimizer) -> None:
        """Capture the updates after an optimizer's step."""
        if recording.due.reaches("updates"):
            self._updates.end(recording, optimizer)

    def take_gradients(self, recording: Recording, optimizer: Optimizer) -> None:
        """Capture the gradients that an optimizer has consumed."""
        if _reaches(recording, _GRADIENTS):
            ids = updated([optimizer])
            owned = [
                parameter for parameter in self._names.parameters() if id(parameter.value) in ids
            ]
            self._take_consumed(recording, optimizer, owned)

    def take_rest(
        self, recording: Recording, stepped: Iterable[Optimizer], known: Iterable[Optimizer]
    ) -> None:
        """Capture the weights that no optimizer has updated, and gradients without optimizer.

        Args:
            recording: receives them.
            stepped: optimizers that have taken a step.
            known: all optimizers of the model.
        """
        if _reaches(recording, (*_WEIGHTS, *_GRADIENTS)):
            parameters = self._parameters(recording)
            ids = updated(stepped)
            left = [parameter for parameter in parameters if id(parameter.value) not in ids]
            if left:
                self._take_weights(recording, left)
                ids = updated(known)
                free = [one for one in left if id(one.value) not in ids]
                # A loop that updates the weights itself may have set them to zero afterwards.
                if any(one.value.grad is not None and one.value.grad.any() for one in free):
                    self._passed.clear()
                    self._take_gradients(recording, free, None)
                elif self._passed:
                    self._take_gradients(recording, free, None)
        self._passed.clear()

    def keep_gradients(self) -> None:
        """Keep the gradients at the end of a backward pass until the end of the step."""
        gradients = {
            id(parameter.value): parameter.value.grad
            for parameter in self._names.parameters()
            if parameter.value.grad is not None
        }
        if sum(gradient.numel() for gradient in gradients.values()) <= _MOST_KEPT:
            self._passed = {key: one.detach().clone() for key, one in gradients.items()}

    def take_buffers(self, recording: Recording) -> None:
        """Capture the buffers, which a forward may change."""
        due = recording.due
        if due.reaches("buffers"):
            for name, buffer in self._names.buffers():
                ask = due.ask(name)
                if ask and not is_lazy(buffer):
                    self._keep(recording, name, buffer, ask)

    def names(self, optimizers: list[Optimizer]) -> list[str]:
        """Return the names of all tensors known to be available for capture."""
        parameters = self._names.parameters()
        ours = [parameter.value for parameter in parameters]
        found = self._names.all()
        groups = 0
        for optimizer in optimizers:
            found += (
                name for name, _ in hyperparameters(optimizer, self._names.prefix, groups, ours)
            )
            found += (name for name, _, _ in slots(kept_of(optimizer, parameters)))
            groups += len(optimizer.param_groups)
        return found

    def _parameters(self, recording: Recording) -> list[NamedParameter]:
        """Return the parameters, listed once per recording."""
        of, listed = self._listed
        if of is None or of() is not recording:
            listed = self._names.parameters()
            self._listed = weakref.ref(recording), listed
        return listed

    def _take_weights(self, recording: Recording, parameters: list[NamedParameter]) -> None:
        due = recording.due
        if due.reaches("weights") or due.reaches("biases"):
            asked = (
                (parameter, _asked(parameter, due.ask(parameter.weight)))
                for parameter in parameters
            )
            named = [(one.weight, one.value, ask) for one, ask in asked if ask]
            self._take_all(recording, [one for one in named if not is_lazy(one[1])])

    def _take_consumed(
        self, recording: Recording, optimizer: Optimizer, owned: list[NamedParameter]
    ) -> None:
        # Set by a GradScaler for a fused optimizer, which unscales or skips by itself.
        found_inf = getattr(optimizer, "found_inf", None)
        if _reaches(recording, _GRADIENTS) and not (found_inf is not None and found_inf.item()):
            self._take_gradients(recording, owned, getattr(optimizer, "grad_scale", None))

    def _take_gradients(
        self, recording: Recording, parameters: list[NamedParameter], scale: Tensor | None
    ) -> None:
        due = recording.due
        # Asked once: the name of each Taylor term is built on demand.
        gradients, terms = map(due.reaches, _GRADIENTS)
        if not (gradients or terms):
            return
        named: list[tuple[str, Tensor, Ask]] = []
        for parameter in parameters:
            gradient = self._passed.get(id(parameter.value), parameter.value.grad)
            ask = _asked(parameter, due.ask(parameter.gradient)) if gradients else NOTHING
            taylor = due.ask(parameter.taylor) if terms else NOTHING
            if (ask or taylor) and gradient is not None:
                true = gradient if scale is None else gradient / scale.to(gradient.device)
                if ask:
                    named.append((parameter.gradient, true, ask))
                if taylor:
                    self._keep(recording, parameter.taylor, parameter.taylor_terms(true), taylor)
        self._take_all(recording, named)

    def _take_all(self, recording: Recording, named: list[tuple[str, Tensor, Ask]]) -> None:
        """Keep tensors, all at once if only statistics are due."""
        if named and not any(ask.tensor for _, _, ask in named):
            self._keep_all(recording, named)
            return
        for name, value, ask in named:
            self._keep(recording, name, value, ask)

    def _take_schedulers(self, recording: Recording, optimizer: Optimizer, before: int) -> None:
        """Record the number of an optimizer's schedulers and of their steps."""
        for named, number in (
            (scheduler_steps, self._schedulers.steps),
            (scheduler_count, self._schedulers.count),
        ):
            name = named(self._names.prefix, before)
            if recording.due.ask(name) and (value := number(optimizer)) is not None:
                recording.add_scalar(name, float(value))

    def _take_optimizer(
        self,
        recording: Recording,
        optimizer: Optimizer,
        groups: Callable[[], int],
        owned: list[NamedParameter],
    ) -> None:
        due = recording.due
        if not due.reaches("optimizer_state"):
            return
        ours = [one.value for one in owned]
        before = groups()
        for name, number in hyperparameters(optimizer, self._names.prefix, before, ours):
            if due.ask(name):
                self._take_number(recording, name, number)
        self._take_schedulers(recording, optimizer, before)
        kept = kept_of(optimizer, owned)
        size = sum([len(of_it) for _, of_it in kept])
        if self._unasked.get(optimizer) == (due, size):
            return
        self._unasked[optimizer] = due, size
        for name, value, is_tensor in slots(kept):
            ask = due.ask(name)
            if ask:
                self._unasked.pop(optimizer, None)
            if ask and is_tensor:
                assert isinstance(value, Tensor)
                self._keep(recording, name, value, ask)
            elif ask:
                self._take_number(recording, name, value)

    def _take_number(self, recording: Recording, name: str, number: float | Tensor) -> None:
        if isinstance(number, Tensor):
            self._copier.keep_scalar(recording, name, number, 1.0)
        else:
            recording.add_scalar(name, number)


def _asked(parameter: NamedParameter, ask: Ask) -> Ask:
    """Return what to keep, without the fingerprint of a shard: those of ranks always differ."""
    if "fingerprint" not in ask.reductions:
        return ask
    places = getattr(parameter.value, "placements", ())
    if all(place.is_replicate() for place in places):
        return ask
    rest = ask.reductions - {"fingerprint"}
    return ask._replace(reductions=rest) if rest or ask.tensor or ask.live else NOTHING


def _reaches(recording: Recording, kinds: Iterable[str]) -> bool:
    """Return whether any tensor of some kinds may be due."""
    return any(map(recording.due.reaches, kinds))
