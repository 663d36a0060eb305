"""Rule: the workers of a data loader do the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.contracts.contract import Contract

_NO_LOADER = "only the workers of PyTorch's DataLoader are compared"


class EqualWorkers(Contract):
    """The workers of a data loader draw the same random numbers, or load the same rows.

    Workers that the loader forks report the states of their random generators (those of Python,
    numpy and torch, and those that the data set holds) before and after their first batch. Fires if
    two workers of the training's loader began with the same state, drew from it and ended with the
    same: each augmentation is made once per worker. Workers of an iterable data set have no indices
    to tell them apart, and often share the state of a shuffle; for these, the rule fires if the
    first batches are equal.
    """

    fault = "equal_workers"
    stage = "data"
    consequences = ("outcome", "overfitting")
    position = 75
    inapplicable = Reasons(keras=_NO_LOADER, xgboost=_NO_LOADER, sklearn=_NO_LOADER)
    remedy = (
        "seed what draws in each worker by torch.utils.data.get_worker_info().seed; let the workers"
        " of an iterable data set load different rows, by their id"
    )

    def describe(self, breach: Mapping[str, Any]) -> tuple[float, str, str]:
        """See `Contract.describe`."""
        workers = f"{breach['workers']} workers of the training's data loader"
        if breach["what"] == "rows":
            seen = f"the first batches of {workers} are equal"
            cause = "each worker loads all rows, so that every row comes several times"
        else:
            seen = f"{workers} drew the same random numbers from {breach['what']}"
            cause = "the workers have equal seeds, so that augmentations repeat"
        return float(breach["workers"]), seen, cause
