"""Rule: inputs are constant, of another size in evaluations, or have their axes mixed up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.data.only_number import OnlyNumber
from vinedresser.rules.data.output_positions import OutputPositions
from vinedresser.rules.data.repeated_rows import RepeatedRows
from vinedresser.rules.data.row_sizes import RowSizes
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.learning_outcome import several_trained
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.rows import RowPositions, row_digests
from vinedresser.rules.symptom import Symptom
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Minimum number of batches, rows and features.
_BATCHES = 8
_ROWS = 128
_FEATURES = 8
_ROWS_OF_BATCH = 8
# Maximum number of rows to store, and the share of known rows above which a batch counts as
# repeated.
_MOST_SEEN = 1 << 15
_COMES_AGAIN = 0.1
# Steps, and the share of a run, after which a training should have learned something: this share of
# the chance-level error must be removed.
_PATIENCE = 150
_SHARE = 0.4
_LEARNED = 0.5
# Share of the changing features that occur in one row only, above which features are sparse.
_SPARSE = 0.25
# Gain on training rows known by heart, and on others of which nothing is known.
_BY_HEART, _NOTHING = 0.8, 0.3
# Share of the inputs of an embedding that have decimals.
_DECIMALS = 0.5


class CorruptInputs(OnceRule):
    """The inputs are all equal, repeated, mostly constant, or have their axes in the wrong order.

    Fires when, over at least eight batches and 128 rows, all rows of each batch are equal while
    their labels differ, and when positions in the batch explain more than ``order`` of the variance
    of the outputs, but nothing of inputs and labels (`OutputPositions`): the model mixes rows. Also
    fires in a training that has removed less than half of the
    chance-level error after 150 steps and 40 % of the run, or at its end, when, over as many rows,

    - all rows are equal, such as all zero;
    - all features of all rows are one number and only masks or indices differ, as the edges of a
      graph, and nothing was learned;
    - more than ``constant`` of the features never change (with eight features or more), over 128
      distinct rows. Sparse features such as one-hot words are excepted: where more than a quarter
      of those that change are non-zero in one row only, others have not occurred yet (the idea
      behind Good, The population frequencies of species, Biometrika 1953);
    - the position of a row in its batch explains more than ``order`` of the variance of the rows'
      means or standard deviations (`RowPositions`), in batches of rows not seen before. For
      shuffled rows this is 0. A view in place of a permutation of the axes puts one feature of all
      rows into each row.

    Also fires when 20 batches have at most 32 different rows, while twice as many others are
    evaluated (`RepeatedRows`), if each batch has copies of its rows, or if the predictions for
    training rows are perfect and those for the others hardly better than guessing. Fires when no
    row of several evaluations has the size of any training row (`RowSizes`), unless the predictions
    for them are known to be good: they are prepared in another way.

    If the targets are the inputs, rows that are all equal are reported whatever the outcome, and so
    are inputs with decimals of a `keras.Sequential` that begins with an Embedding, which cuts them
    off.

    Args:
        constant: share of features that never change.
        order: share of the rows' variance explained by their positions in the batch.
    """

    severity = "warning"
    fault = "corrupt_inputs"
    stage = "data"
    # Inputs of zero give the first layer no gradient, and may be the targets, too. Those that are
    # prepared in another way than the evaluated ones may have a wrong scale for that reason.
    consequences = (
        "outcome",
        "inside",
        "over_regularisation",
        "overfitting",
        "single_label",
        "unnormalised_inputs",
        "untrained_parameters",
    )
    position = 40
    modes = ("train", "eval")

    def __init__(self, constant: float = 0.9, order: float = 0.5) -> None:
        require_between(0, 1, constant=constant, order=order)
        self.constant = constant
        self.order = order
        self.batches = Batches()
        self.outcome = Outcome()
        self._repeated = RepeatedRows()
        self._sizes = RowSizes()
        # Whether several models are trained; whether all targets are the inputs.
        self._several = False
        # Whether the inputs are those of an embedding of Keras.
        self._embeds = False
        self._rebuilds = True
        self._positions = RowPositions()
        self._outputs = OutputPositions()
        self._seen: set[bytes] = set()
        self._lows = self._highs = np.zeros(0)
        # Distinct rows in which each feature is not zero.
        self._occurs = np.zeros(0, np.int64)
        self._batch_count = self._rows = 0
        self._alike = True
        self._number = OnlyNumber()
        self._last: Step | None = None
        # Full name of the first input.
        self._name = ""

    def begin(self, info: RunRecord) -> None:
        """Read whether the inputs are those of an embedding of Keras."""
        roots = [words[0] for words in info.modules.values() if "model" in words[2:]]
        layers = [words[0] for words in info.modules.values() if "model" not in words[2:]]
        # Others may pass a part of their inputs on.
        ordered = info.framework == "keras" and roots == ["Sequential"]
        self._embeds = ordered and layers[:1] == ["Embedding"]

    def on_record(self, info: RunRecord) -> None:
        """Read the number of models."""
        self._several = several_trained(info)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.mode == "eval":
            self._repeated.evaluate(self.batches.inputs)
            self._sizes.evaluate(self.batches.inputs)
            return self._reported(self._of_repetition() or self._of_size())
        values = _flat(self.batches.inputs)
        if values is None:
            return None
        self._repeated.train(self.batches.inputs, self.batches.paired)
        self._sizes.train(self.batches.inputs)
        self._last = step
        self._name = next(iter(self.batches.inputs))
        self._take(values)
        self._number.add(self.batches.inputs)
        self._outputs.add(values, self.batches.paired)
        late = step.step >= max(_PATIENCE, _SHARE * (self.expected_steps or 0))
        return (
            self._reported(self._of_decimals())
            or self._counted(self._nothing() if self._alike else None)
            or self._reported(self._of_outputs())
            or (self._of_little_learned() if late else None)
        )

    def at_end(self) -> Finding | None:
        """Return the finding at the end of the run."""
        return self._of_little_learned() or self._reported(self._of_size())

    def _take(self, values: NDArray[np.float64]) -> None:
        """Add a batch of inputs.

        Args:
            values: inputs of the model, float64 [rows, features].
        """
        lows, highs = values.min(0), values.max(0)
        if not self._batch_count:
            self._lows, self._highs = lows, highs
            self._occurs = np.zeros(len(lows), np.int64)
        if lows.shape != self._lows.shape:
            # Sequences of varying length have no fixed features.
            self._done = True
            return
        self._lows, self._highs = np.minimum(self._lows, lows), np.maximum(self._highs, highs)
        self._batch_count += 1
        self._rows += len(values)
        self._rebuilds &= self._are_targets(values)
        differ = self._rebuilds or self._labels_differ(len(values))
        self._alike &= bool((lows == highs).all()) and differ
        places = {digest: place for place, digest in enumerate(row_digests(values))}
        fresh = [place for digest, place in places.items() if digest not in self._seen]
        if len(self._seen) < _MOST_SEEN:
            self._seen |= places.keys()
            self._occurs += (values[fresh] != 0).sum(0)
            again = len(places) - len(fresh) > _COMES_AGAIN * len(places)
            if not again and len(places) >= _ROWS_OF_BATCH:
                self._positions.add(values)

    def _labels_differ(self, rows: int) -> bool:
        return any(
            len(one.labels) == rows and not (one.labels == one.labels[:1]).all()
            for one in self.batches.paired
        )

    def _are_targets(self, values: NDArray[np.float64]) -> bool:
        """Return whether all targets are the inputs, as of an autoencoder."""
        targets = [np.asarray(one.labels, np.float64) for one in self.batches.paired]
        return bool(targets) and all(
            target.size == values.size and bool((target.ravel() == values.ravel()).all())
            for target in targets
        )

    def _of_little_learned(self) -> Finding | None:
        """Return the finding that counts in a training that does not succeed anyway."""
        if self._learns():
            return None
        symptom = (
            self._nothing()
            or self._constant()
            or (self._number.symptom(self._name, self._rows) if self._learned_nothing() else None)
            or self._mixed()
        )
        return self._counted(symptom, self.outcome.verdict().reason) if symptom else None

    def _counted(self, symptom: Symptom | None, reason: str = "") -> Finding | None:
        """Return the finding of a symptom in enough batches and rows; None without one."""
        if self._batch_count < _BATCHES or self._rows < _ROWS:
            return None
        return self._reported(symptom, reason, looks=self._batch_count, rows=self._rows)

    def _reported(
        self, symptom: Symptom | None, reason: str = "", **evidence: int
    ) -> Finding | None:
        """Return the finding of a symptom at the last train step; None without one."""
        if symptom is None or self._last is None:
            return None
        return self.found(self._last, since=0, **symptom.reported(reason, **evidence))

    def _of_decimals(self) -> Symptom | None:
        """Return the symptom of numbers that an embedding takes for indices."""
        if not self._embeds or len(self.batches.inputs) != 1:
            return None
        values = np.asarray(self.batches.inputs[self._name], np.float64)
        whole = np.trunc(values)
        share = float((values != whole).mean())
        if not share > _DECIMALS:
            return None
        return Symptom(
            self._name,
            "share",
            share,
            _DECIMALS,
            0.95,
            f"{share:.0%} of the inputs of an Embedding have decimals, which it cuts off: that "
            f"leaves {np.unique(whole).size} of {np.unique(values).size} different numbers",
            "the inputs are quantities, or were scaled, but an Embedding takes them for indices",
            "use a dense layer instead of the Embedding for quantities; do not scale or normalise "
            "indices",
        )

    def _of_outputs(self) -> Symptom | None:
        """Return the symptom of outputs that belong to positions in the batch, not to rows."""
        part = self._outputs.explained()
        if part <= self.order:
            return None
        return Symptom(
            self.batches.tensor("predictions", self.batches.paired[0].loss),
            "order",
            part,
            self.order,
            0.9,
            f"the position of a row in its batch explains {part:.0%} of the variance of an output, "
            "but nothing of the inputs and labels",
            "an operation of the model works along the batch axis (a mean, softmax or reshape over "
            "the wrong axis, or batch_first): rows are mixed, and the output of a row is not its "
            "own",
            "check the axes of means, softmaxes, reshapes and recurrent layers; the output of a "
            "row must not depend on the other rows of its batch",
        )

    def _of_repetition(self) -> Symptom | None:
        """Return the symptom of a few rows that are repeated, and copied or known by heart."""
        found = self._repeated.symptom(self._name)
        by_heart = found is not None and (found.fault is None or self._only_by_heart())
        return found if by_heart else None

    def _of_size(self) -> Symptom | None:
        """Return the symptom of evaluated rows that have another size than all training rows."""
        found = None if self._several else self._sizes.symptom()
        gains = self.outcome.fit.gains("eval") if found else []
        return None if gains and max(gain.most for gain in gains) > _LEARNED else found

    def _only_by_heart(self) -> bool:
        """Return whether training rows are predicted perfectly, and evaluated ones are not."""
        train, others = self.outcome.fit.gains("train"), self.outcome.fit.gains("eval")
        return (
            bool(train and others)
            and all(gain.value > _BY_HEART for gain in train)
            and all(gain.most < _NOTHING for gain in others)
        )

    def _learns(self) -> bool:
        """Return whether the training succeeds anyway."""
        known = [gain.value for gain in self.outcome.fit.gains("train")]
        if known:
            return max(known) > _LEARNED
        return self.outcome.verdict().kind == "good"

    def _nothing(self) -> Symptom | None:
        """Return the problem if no row differs from another."""
        zero = not self._lows.any() and not self._highs.any()
        same = bool((self._lows == self._highs).all())
        if not same and not self._alike:
            return None
        what = "zero" if zero else "all the same" if same else "the same for all rows of a batch"
        return Symptom(
            self._name,
            "std",
            0.0,
            0.0,
            0.99,
            f"the inputs of {self._rows} rows are {what}",
            "the inputs were lost in preprocessing: a mask, a cast to integers, a repeated "
            "division by the maximum, or one row copied to all others",
            "inspect a batch right before the model is called, and the code that creates it",
        )

    def _constant(self) -> Symptom | None:
        features, change = len(self._lows), self._lows != self._highs
        share = float(1 - change.mean())
        if features < _FEATURES or share <= self.constant or len(self._seen) < _ROWS:
            return None
        if change.any() and (self._occurs[change] == 1).mean() > _SPARSE:
            return None
        return Symptom(
            self._name,
            "share",
            share,
            self.constant,
            0.8,
            f"{share:.0%} of {features} features have the same value in all {self._rows} rows",
            "most of the inputs were lost: a mask, clipping, a wrong column, or a scale far too "
            "large for the features",
            "inspect a batch right before the model is called; remove constant features",
        )

    def _learned_nothing(self) -> bool:
        """Return whether all that is known of the predictions is that they are near guessing."""
        gains = self.outcome.fit.gains("train")
        return bool(gains) and all(gain.least < 0 for gain in gains)

    def _mixed(self) -> Symptom | None:
        part = self._positions.explained()
        if self._positions.batches < _BATCHES or part <= self.order:
            return None
        return Symptom(
            self._name,
            "order",
            part,
            self.order,
            0.85,
            f"the position of a row in its batch explains {part:.0%} of how rows differ in mean "
            f"or spread ({self._positions.batches} batches of different rows); it should explain "
            "nothing",
            "the axes of the batches are in the wrong order (view or reshape instead of a "
            "permutation): each row mixes parts of all rows and does not match its label",
            "use transpose or permute instead of view or reshape; check that the output for a row "
            "does not depend on the other rows of its batch",
        )


def _flat(inputs: dict[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return all inputs side by side, float64 [rows, features]; None without common rows."""
    arrays = list(inputs.values())
    if not arrays or any(not array.ndim or array.dtype.kind not in "biuf" for array in arrays):
        return None
    if len({len(array) for array in arrays}) > 1 or len(arrays[0]) < 2:
        return None
    flat = [np.asarray(array, np.float64).reshape(len(array), -1) for array in arrays]
    values = np.concatenate(flat, axis=1)
    return values if values.shape[1] and np.isfinite(values).all() else None
