"""Losses that may rise while all is well, such as those of a model that makes its own data."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.compared import INPUTS_STOP, ROWS
from vinedresser.rules.signals.losses.loss_identity import compares_numbers
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of changes of the sign among recent values of a loss that no trend through zero has.
_CHANGES, _RECENT = 20, 100
# Minimum number of labels that are all equal.
_ROWS = 128
_LABELS = "labels/"
# Number of checks at which the model had acted, and the name of that scalar.
_CHECKS = 5
_ACTS = "acts"
# Entries that a batch of transitions has.
_ENTRIES = (frozenset({"action", "actions"}), frozenset({"reward", "rewards"}))


class AimlessLosses(Signal):
    """Tells which losses say nothing about progress.

    They are policy gradients, and losses of unknown function in a run that has a policy gradient
    (`RunRecord.may_rise`). If the model acts between its updates (``state/acts``), as an agent does
    that chooses its actions, learns the values of chosen actions (`RunRecord.chooses_actions`) or
    has transitions as its inputs, with entries named for actions and rewards, they are losses of
    unknown function and errors of values: longer episodes have greater returns, and a greater loss.

    A loss whose sign changes again and again is the difference of two terms that follow each other,
    such as the free energies of data and samples in contrastive divergence (Hinton, Neural
    Computation 14, 2002): neither its level nor its noise relative to that says anything.

    A loss whose labels are all the same class numbers the right candidate among others that the
    model makes, too, as contrastive losses with a queue of keys do (He et al., "Momentum contrast
    for unsupervised visual representation learning", 2020): it rises while random keys are replaced
    by real ones.
    """

    needs = (
        Need("losses"),
        Need("state", every=20, required=False),
        # As `Batches` needs them, so that labels keep the rows of predictions and inputs.
        Need("labels", every=5, tensor=True, rows=ROWS, required=False),
        Need("model_inputs", every=5, tensor=True, rows=ROWS, required=False, stop=INPUTS_STOP),
    )

    def __init__(self) -> None:
        self._checks = 0
        self._chooses = self._transitions = False
        self._may_rise: Callable[[str], bool] = lambda _: False
        self._known: frozenset[str] = frozenset()
        # Whether the sign changed at each of the latest values of a loss, the latest value, and the
        # losses whose sign has changed again and again.
        self._changes: dict[str, deque[bool]] = {}
        self._latest: dict[str, float] = {}
        self._differences: set[str] = set()
        # The class that all labels of a loss share, and their number; None if they differ.
        self._same: dict[str, tuple[int, int] | None] = {}

    def on_record(self, info: RunRecord) -> None:
        """See `Signal.on_record`: some policy gradients are recognised after several updates."""
        self._may_rise = info.may_rise
        self._chooses = info.chooses_actions
        self._known = frozenset(
            f"losses/{name}"
            for name, setup in info.losses.items()
            if not (compares_numbers(setup) or setup.get("actions") is True)
        )

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode == "train" and step.rank == 0:
            for name, value in step.scalars_of("losses").items():
                before = self._latest.get(name, value)
                changes = self._changes.setdefault(name, deque(maxlen=_RECENT))
                changes.append(min(before, value) < 0 < max(before, value))
                self._latest[name] = value
                if sum(changes) >= _CHANGES:
                    self._differences.add(name)
            self._transitions |= _are_transitions(step.tensors_of("model_inputs"))
            for name in step.tensors_of("labels"):
                self._check_labels(name.removeprefix(_LABELS), step.tensor(name))
            self._checks += any(
                name.rpartition("/")[2].rpartition(".")[2] == _ACTS
                for name in step.scalars_of("state")
            )

    def includes(self, loss: str) -> bool:
        """Return whether a loss says nothing about progress.

        Args:
            loss: its full name.
        """
        acts = self._chooses or self._transitions or self._checks >= _CHECKS
        unknown = acts and loss not in self._known
        same = self._same.get(loss.removeprefix("losses/"))
        candidates = same is not None and same[1] >= _ROWS
        return unknown or candidates or loss in self._differences or self._may_rise(loss)

    def _check_labels(self, loss: str, labels: NDArray[Any]) -> None:
        """Note whether all labels of a loss are the same class.

        Args:
            loss: its name without the collection.
            labels: labels [rows, ...] of a step.
        """
        first = int(labels.flat[0]) if labels.size and labels.dtype.kind in "iu" else None
        before = self._same.get(loss, (first, 0))
        if before is None or first != before[0] or first is None or (labels != first).any():
            self._same[loss] = None
        else:
            self._same[loss] = (first, before[1] + labels.size)


def _are_transitions(inputs: Iterable[str]) -> bool:
    """Return whether the inputs of a model, by their full names, are transitions of an agent."""
    words = {word for name in inputs for word in re.findall(r"\w+", name.lower())}
    return all(words & one for one in _ENTRIES)
