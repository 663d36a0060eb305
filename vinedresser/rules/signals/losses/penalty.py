"""The share of a reported loss that stems from penalties on weights."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal, Compared
from vinedresser.rules.signals.losses.loss_formulas import row_losses
from vinedresser.rules.signals.losses.loss_identity import LossIdentities
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_ERRORS = 3.0
# Number of checks; their smallest share counts.
_WINDOW = 5
# Settings that weight rows or change the labels.
_WEIGHING = ("weight", "pos_weight", "class_weight", "label_smoothing", "gamma", "alpha")


class Penalty(BatchSignal):
    """The share of each loss that its formula does not explain: penalties on weights.

    Keras reports the sum of loss and regularisers as the loss. In PyTorch loops add penalties after
    the loss module, where they are not visible. Covers losses that are identified by name, use a
    mean, and weight no classes. If only some rows were captured, three standard errors are
    attributed to the loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.identities = LossIdentities()
        self._settings: dict[str, dict[str, Any]] = {}
        self._shares: dict[str, deque[float]] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the settings of the losses."""
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
        """Return the full name of the loss with the greatest penalty, and its share."""
        full = {loss: min(some) for loss, some in self._shares.items() if len(some) == _WINDOW}
        loss = max(full, key=full.__getitem__, default=None)
        return None if loss is None else (f"losses/{loss}", full[loss])

    def _share(self, compared: Compared, value: float) -> float | None:
        """Return the share of a loss that the rows do not explain; None if unknown."""
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
        if not compared.complete:
            error = _ERRORS * float(losses.std()) / math.sqrt(losses.size)
        return max(1 - (float(losses.mean()) + error) / value, 0.0)
