"""Whether a training minimizes the negative of its loss function."""

from __future__ import annotations

from vinedresser.rules.signals.base import Signal
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord


class LossSigns(Signal):
    """The signs with which the loss functions of a training are minimized.

    Of several optimizers, as of adversaries, one may maximise what another minimises: then nothing
    is known.

    Attributes:
        negated: the only optimizer minimises the negative of a loss function.
        maximizes: the only optimizer maximises, and it is not known what.
    """

    def __init__(self) -> None:
        self.negated = False
        self.maximizes = False

    def on_record(self, info: RunRecord) -> None:
        """Read the signs; a loop may tell them only in its second step."""
        signs = [setup["negated"] for setup in info.losses.values() if "negated" in setup]
        if len(info.optimizers) == 1:
            maximizes = info.optimizers[0].get("settings", {}).get("maximize") is True
            self.negated = bool(signs) and (True in signs) != maximizes
            self.maximizes = maximizes and not signs

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
