"""Capturing the updates of parameters by an optimizer's step."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.torch_copier import Keep, TorchCopier
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.names import NamedParameter


class _Before(NamedTuple):
    """Parameters before a step.

    Attributes:
        values: copies of their values; read-only.
    """

    asked: list[NamedParameter]
    values: list[Tensor]


class Updates:
    """Captures updates: parameter values after an optimizer's step minus those before.

    Args:
        copier: copies tensors for later statistics.
        keep: shielded `TorchCopier.keep_parameter`.
    """

    def __init__(self, copier: TorchCopier, keep: Keep) -> None:
        self._copier = copier
        self._keep = keep
        # By optimizer that is taking a step.
        self._before: weakref.WeakKeyDictionary[Recording, dict[Optimizer, _Before]] = (
            weakref.WeakKeyDictionary()
        )

    def begin(
        self, recording: Recording, optimizer: Optimizer, owned: list[NamedParameter]
    ) -> None:
        """Copy the requested parameters before a step.

        Args:
            recording: receives the updates.
            optimizer: optimizer that is about to step.
            owned: parameters that it updates.
        """
        due = recording.due
        asked = [one for one in owned if due.ask(one.update) and not is_lazy(one.value)]
        if asked:
            with WithoutModes(), torch.no_grad():
                values = [
                    # A copy exists already if the weight's statistics are due as well.
                    copied if copied is not None else _here(one.value).clone()
                    for one in asked
                    for copied in [self._copier.copy_of(recording, one.value)]
                ]
            self._before.setdefault(recording, {})[optimizer] = _Before(asked, values)

    def end(self, recording: Recording, optimizer: Optimizer) -> None:
        """Capture the updates after the step."""
        before = self._before.get(recording, {}).pop(optimizer, None)
        if before is None:
            return
        names = [one.update for one in before.asked]
        asks = list(map(recording.due.ask, names))
        with WithoutModes(), torch.no_grad():
            after = [_here(one.value) for one in before.asked]
            late = not any(ask.tensor for ask in asks)
            later = self._copier.copied_for_later(recording, after) if late else None
            if later is not None:
                torch._foreach_sub_(later.tensors, before.values)
                named = list(zip(names, asks, strict=True))
                self._copier.keep_copies(recording, named, later)
                return
            changes = torch._foreach_sub(after, before.values)
        for name, change, ask in zip(names, changes, asks, strict=True):
            self._keep(recording, name, change, ask)


def _here(parameter: Tensor) -> Tensor:
    """Return a parameter detached, as this process's shard."""
    value = parameter.detach()
    part: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return part
