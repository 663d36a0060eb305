"""What a gradient scaler of mixed precision does: its scale, and the steps that it skips."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.optimizers.optimizer_steps import updated

__all__ = ["Scaling"]


class Scaling:
    """Sees the steps that gradient scalers take with the optimizers of one model.

    Args:
        model: the user's own.
        shield: around all of it.
    """

    def __init__(self, model: nn.Module, shield: Shield) -> None:
        self._model = model
        guard = shield.guard
        self.before = guard("the start of a scaler's step", self._before)
        self.after = guard("the end of a scaler's step", self._after)
        self._scaler: weakref.ref[GradScaler] | None = None
        # By device, counted there: nobody waits for it.
        self._skipped: dict[str, Tensor] = {}
        self._ours: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()

    def begin(self) -> None:
        """See scalers from now on, if that is not so already."""
        if self not in _watching:
            _watching.append(self)
            _stand_around()

    def remove(self) -> None:
        """See no more; the last one leaves scalers as they were found."""
        if self in _watching:
            _watching.remove(self)
            _leave()

    def figures(self) -> tuple[Tensor, Tensor] | None:
        """Return the scale and how many steps were skipped so far; None as long as none is seen."""
        scaler = None if self._scaler is None else self._scaler()
        scale = None if scaler is None else scaler._scale
        if scale is None:
            return None
        skipped = torch.zeros((), device=scale.device)
        for count in self._skipped.values():
            skipped += count.to(scale.device)
        return scale, skipped

    def _before(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if scaler.is_enabled() and self._is_ours(optimizer):
            self._scaler = weakref.ref(scaler)

    def _after(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if not (scaler.is_enabled() and self._is_ours(optimizer)):
            return
        for device, found in scaler._found_inf_per_device(optimizer).items():
            count = self._skipped.setdefault(device, torch.zeros((), device=device))
            count += (found > 0).reshape(())

    def _is_ours(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer updates the model."""
        if optimizer not in self._ours:
            parameters = set(map(id, self._model.parameters()))
            self._ours[optimizer] = not parameters.isdisjoint(updated([optimizer]))
        return self._ours[optimizer]


# Of the process, as the class of scalers is.
_watching: list[Scaling] = []
_originals: list[Callable[..., Any]] = []


def _stand_around() -> None:
    """Put a method that tells who watches in the place of `GradScaler.step`, if it is not there."""
    if _originals:
        return
    original = GradScaler.step

    @functools.wraps(original)
    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        watching = list(_watching)
        for one in watching:
            one.before(self, optimizer)
        result = original(self, optimizer, *args, **kwargs)
        for one in watching:
            one.after(self, optimizer)
        return result

    _originals.append(original)
    GradScaler.step = step  # type: ignore[method-assign]


def _leave() -> None:
    """Put the original back, where nobody watches any more."""
    if not _watching and _originals:
        GradScaler.step = _originals.pop()  # type: ignore[method-assign]
