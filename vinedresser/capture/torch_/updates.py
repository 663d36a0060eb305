"""By how much an optimizer's step changes the parameters of a torch model."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.config import Ask
from vinedresser.capture.recording import Recording
from vinedresser.capture.torch_.aside import Aside
from vinedresser.capture.torch_.names import NamedParameter

__all__ = ["Updates", "updates_name"]

_Keep = Callable[[Recording, str, Tensor, Ask], object]
# By an optimizer whose step is going on: parameters, and what they were before.
_Before = dict[Optimizer, list[tuple[NamedParameter, Tensor]]]


def updates_name(parameter: NamedParameter) -> str:
    """Return the name of a parameter's update, such as ``updates/conv1.weight``."""
    return f"updates/{parameter.path}"


class Updates:
    """Takes the value of parameters after an optimizer's step minus that before it.

    Args:
        keep: takes tensors, as `TorchKeeper.keep_parameter` does.
    """

    def __init__(self, keep: _Keep) -> None:
        self._keep = keep
        self._before: weakref.WeakKeyDictionary[Recording, _Before] = weakref.WeakKeyDictionary()

    def begin(
        self, recording: Recording, optimizer: Optimizer, owned: list[NamedParameter]
    ) -> None:
        """Copy what is asked for, as it is before a step.

        Args:
            recording: takes the updates.
            optimizer: about to step.
            owned: the parameters that it updates.
        """
        due = recording.due
        asked = [one for one in owned if due.ask(updates_name(one)) and not is_lazy(one.value)]
        if asked:
            with Aside(), torch.no_grad():
                copies = [(one, _here(one.value).clone()) for one in asked]
            self._before.setdefault(recording, {})[optimizer] = copies

    def end(self, recording: Recording, optimizer: Optimizer) -> None:
        """Take by how much a step that was begun has changed them."""
        copies = self._before.get(recording, {}).pop(optimizer, ())
        for one, before in copies:
            name = updates_name(one)
            with Aside(), torch.no_grad():
                change = torch.sub(_here(one.value), before, out=before)
            self._keep(recording, name, change, recording.due.ask(name))


def _here(parameter: Tensor) -> Tensor:
    """Return this process's part of a parameter, without graph."""
    value = parameter.detach()
    part: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return part
