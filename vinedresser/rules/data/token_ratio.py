"""Rule: most tokens have the same value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.rows import are_tokens
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of rows to check, and minimum number of distinct tokens.
_ROWS = 512
_VALUES = 8


class TokenRatio(OnceRule):
    """More than half of the tokens have one value, usually the padding of short sequences.

    Checked once, for the first 512 rows (or all rows of a shorter run) of inputs of integers of 16
    bits or more, [rows, positions], with at least 4 positions and 8 distinct values. If the modules
    are known, the model must have an embedding. Masked padding costs time rather than quality, so
    this is a hint.

    Source: NLPSequenceRatio of the predecessor project (value 0, 50 %).

    Args:
        share: share of one value.
    """

    severity = "info"
    fault = "token_ratio"
    stage = "data"
    position = 100
    predecessors = ("nlp_sequence_ratio",)
    inapplicable = Reasons(
        xgboost="a matrix holds features, not tokens",
        sklearn="estimators take features, not tokens",
    )
    left_out_of = ("classification", "regression", "autoencoder")

    def __init__(self, share: float = 0.5) -> None:
        require_between(0, 1, share=share)
        self.share = share
        self.batches = Batches()
        self._counts: dict[str, dict[int, int]] = {}
        self._rows: dict[str, int] = {}
        self._last: Step | None = None

    def begin(self, info: RunRecord) -> None:
        """Read whether the model has an embedding."""
        kinds = [words[0] for words in info.modules.values() if words]
        self._done = bool(kinds) and not any("Embedding" in kind for kind in kinds)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for name, values in self.batches.inputs.items():
            if not are_tokens(values):
                continue
            self._last = step
            self._count(name, values)
            if self._rows[name] >= _ROWS:
                self._done = True
                return self._finding(step)
        return None

    def at_end(self) -> Finding | None:
        """Return the finding for a run with few rows."""
        return None if self._last is None else self._finding(self._last)

    def _count(self, name: str, values: NDArray[Any]) -> None:
        counts = self._counts.setdefault(name, {})
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + int(count)
        self._rows[name] = self._rows.get(name, 0) + len(values)

    def _finding(self, step: Step) -> Finding | None:
        for name, counts in self._counts.items():
            value, most = max(counts.items(), key=lambda one: one[1])
            share = most / sum(counts.values())
            if share <= self.share or len(counts) < _VALUES:
                continue
            return self.found(
                step,
                since=0,
                tensor=name,
                statistic="share",
                value=share,
                threshold=self.share,
                confidence=0.9,
                seen=f"{share:.0%} of the tokens in the {name} are {value} ({self._rows[name]} "
                f"rows, {len(counts)} distinct values)",
                cause="the sequences are much shorter than the batch and are padded",
                remedy="group sequences of similar length and pad to the longest in the batch; "
                f"mask token {value} in attention and loss",
                evidence={"token": value, "share": share, "values": len(counts)},
            )
        return None
