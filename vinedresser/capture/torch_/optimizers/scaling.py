"""The scale of a gradient scaler, and the steps it skips."""

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


class Scaling:
    """Observes the steps that gradient scalers take with the optimizers of one model.

    Args:
        model: the user's model.
        shield: guards the callbacks.

    Attributes:
        used: whether a scaler was asked for a step, which it may have skipped.
    """

    def __init__(self, model: nn.Module, shield: Shield) -> None:
        self.used = False
        self._model = model
        guard = shield.guard
        self.before = guard("the start of a scaler's step", self._before)
        self.after = guard("the end of a scaler's step", self._after)
        self._scaler: weakref.ref[GradScaler] | None = None
        # Counts on each device, so that no device has to be waited for.
        self._skipped: dict[str, Tensor] = {}
        self._ours: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()

    def begin(self) -> None:
        """Start to observe scalers, if not yet started."""
        if self not in _watching:
            _watching.append(self)
            _patch()

    def remove(self) -> None:
        """Stop to observe scalers."""
        if self in _watching:
            _watching.remove(self)
            _restore()

    def state(self) -> tuple[Tensor, Tensor] | None:
        """Return the scale and the number of skipped steps, float32 [] each, or None if unknown."""
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
            self.used = True

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


# Global, since `GradScaler.step` is.
_watching: list[Scaling] = []
_originals: list[Callable[..., Any]] = []


def _patch() -> None:
    """Patch `GradScaler.step` to notify the observers, if not yet patched."""
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


def _restore() -> None:
    """Restore `GradScaler.step` if there are no more observers."""
    if not _watching and _originals:
        GradScaler.step = _originals.pop()  # type: ignore[method-assign]
