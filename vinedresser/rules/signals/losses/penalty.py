"""How much of a reported loss is not explained by predictions and labels: penalties on weights."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal, Compared
from vinedresser.rules.signals.losses.loss_formulas import row_losses
from vinedresser.rules.signals.losses.loss_identity import LossIdentities

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["Penalty"]

_ERRORS = 3.0
# Looks whose smallest share counts.
_WINDOW = 5
# Settings that weigh rows, or change what they are compared with.
_WEIGHING = ("weight", "pos_weight", "class_weight", "label_smoothing", "gamma", "alpha")


class Penalty(BatchSignal):
    """The share of each loss that its formula does not give: what is added for the weights' sake.

    Keras reports the sum of loss and regularisers as the loss; in PyTorch, where loops add them
    behind the loss module, nothing shows. Only of losses that are known by their name, that take a
    mean, and that weigh no classes. Of a sample of the rows, three standard errors count for the
    loss.
    """

    def __init__(self, every: int = 5, rows: int = 64) -> None:
        super().__init__(every, rows)
        self.identities = LossIdentities(every, rows)
        self._settings: dict[str, dict[str, Any]] = {}
        self._shares: dict[str, deque[float]] = {}

    def begin(self, info: RunRecord) -> None:
        """Take note of how the losses are set up."""
        self._settings = {name: one.get("settings", {}) for name, one in info.losses.items()}

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode != "train":
            return
        for compared in self.batches.compared:
            share = self._share(compared, step.scalars.get(f"losses/{compared.loss}", math.nan))
            if share is not None:
                self._shares.setdefault(compared.loss, deque(maxlen=_WINDOW)).append(share)

    def greatest(self) -> tuple[str, float] | None:
        """Return the loss that has most of it, by its full name, and the least share of late."""
        full = {loss: min(some) for loss, some in self._shares.items() if len(some) == _WINDOW}
        loss = max(full, key=full.__getitem__, default=None)
        return None if loss is None else (f"losses/{loss}", full[loss])

    def _share(self, compared: Compared, value: float) -> float | None:
        """Return the share of a loss's value that is not that of the rows; None: not known."""
        identity = self.identities.of(compared.loss)
        settings = self._settings.get(compared.loss, {})
        if identity is None or not identity.by_name or identity.reduction != "mean":
            return None
        if not math.isfinite(value) or value <= 0 or any(settings.get(one) for one in _WEIGHING):
            return None
        losses = row_losses(identity.formula, compared.labels, compared.predictions)
        if losses is None or not np.isfinite(losses).all():
            return None
        error = 0.0
        if len(compared.labels) >= self.rows:
            error = _ERRORS * float(losses.std()) / math.sqrt(losses.size)
        return max(1 - (float(losses.mean()) + error) / value, 0.0)
