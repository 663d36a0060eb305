"""The scale of a gradient scaler, and the steps it skips."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.optimizers import updated


class Scaling(LoopListener):
    """Observes the steps that gradient scalers take with the optimizers of one model.

    Args:
        shield: guards the callbacks.

    Attributes:
        used: whether a scaler was asked for a step, which it may have skipped.
    """

    def __init__(self, model: nn.Module, shield: Shield) -> None:
        self.used = False
        self._model = model
        self._shield = shield
        self._end: Callable[[], None] | None = None
        self._scaler: weakref.ref[GradScaler] | None = None
        # Counts on each device, so that no device has to be waited for.
        self._skipped: dict[str, Tensor] = {}
        self._ours: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()

    def begin(self) -> None:
        """Start to observe scalers, if not yet started."""
        if self._end is None:
            self._end = listen_to_loop(self, self._shield.guard)

    def remove(self) -> None:
        """Stop to observe scalers."""
        if self._end is not None:
            self._end()
            self._end = None

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

    def scaler_step_begins(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """See `LoopListener.scaler_step_begins`."""
        if scaler.is_enabled() and self._is_ours(optimizer):
            self._scaler = weakref.ref(scaler)
            self.used = True

    def scaler_step_ended(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """See `LoopListener.scaler_step_ended`."""
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
