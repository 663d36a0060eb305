"""Rule: the inputs contain the targets."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.advice import listed
from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.data.leakage.future_tokens import FutureTokens, TokenOffset
from vinedresser.rules.data.leakage.sentinels import Sentinels
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.rows import are_tokens, row_digests
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Share of tokens that the model copies.
_COPIED = 0.9
# Maximum number of columns, and minimum number of rows of a class or distinct values of a target.
_COLUMNS = 4096
_ROWS_OF_CLASS = 8
# Multiple of the rows after which a class with fewer rows is no longer waited for.
_MOST = 4
# Names of inputs that are targets, for models that compute their loss.
_LABELS = re.compile(r"(?i)\[[^\]]*(label|target)[^\]]*\]$")
# Minimum length of a window, number of distinct values of a target, and largest number of pairs of
# targets and features.
_LENGTH, _VALUES, _PAIRS = 4, 8, 4096
# Axes of windows that may be time: [rows, time, features] or [rows, features, time].
_AXES = (1, 2)


class TargetLeakage(OnceRule):
    """The inputs contain the targets, so that the model can copy what it should predict.

    Fires for

    - tokens, if the target of each position is the input token of the same position (a language
      model whose targets were not shifted, or a masked one whose tokens are not hidden) and the
      model predicts nine tenths of them; labels below 0 are ignored, as by the loss, and so is
      the one token that is predicted worst, which may be padding. A batch in which they differ ends
      the check, as with masked language models;
    - tokens, if the target of each position is the input token two or three positions later: the
      targets are shifted twice, so that the model skips a token (`TokenOffset`). Of several inputs,
      none may be the next token, but one whose name says that it is the targets; without such a
      one, inputs that are longer than the targets may begin with tokens without a prediction;
    - tokens whose targets are the next ones, if the model predicts those among its inputs much
      better than that of the last position, which is not (`FutureTokens`): it sees its targets;
    - columns of a table, [rows, columns], if over ``rows`` distinct rows some columns have one
      value per class and together tell all classes, as a copy of the class or its one-hot form,
      if a column equals the target of a regression, or if it is known only of one of two classes
      (`Sentinels`);
    - windows of series, [rows, time, features] or [rows, features, time], if over ``rows`` distinct
      windows the targets are values of the last position (`_WindowEnd`).

    Args:
        rows: number of distinct rows of a table, or windows.
    """

    severity = "warning"
    fault = "data_leakage"
    position = 90
    inapplicable = Reasons(xgboost="feature_dominance finds a column that tells the target")
    left_out_of = ("adversarial",)

    def __init__(self, rows: int = 128) -> None:
        require_at_least(2 * _ROWS_OF_CLASS, rows=rows)
        self.rows = rows
        self.batches = Batches()
        # The distance of the targets from each input of tokens.
        self._offsets: dict[str, TokenOffset] = {}
        self._columns: _Columns | None = None
        # Whether enough rows of a table were seen to tell the columns of one value per class.
        self._asked = False
        self._future = FutureTokens()
        self._end = _WindowEnd()
        self._sentinels = Sentinels()

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        inputs = self.batches.inputs
        if len(self.batches.paired) != 1:
            return None
        (compared,) = self.batches.paired
        tokens = {
            name: values
            for name, values in inputs.items()
            if are_tokens(values) and not _LABELS.search(name)
        }
        if tokens:
            return self._of_tokens(step, tokens, compared)
        if len(inputs) != 1:
            return None
        ((name, values),) = inputs.items()
        table = values.ndim == 2 and 2 <= values.shape[1] <= _COLUMNS
        if table and len(values) == len(compared.labels):
            return self._of_columns(step, name, values, compared)
        if values.ndim == 3 and values.dtype.kind == "f" and not self._end.apart:
            return self._of_windows(step, name, values, compared)
        return None

    def _of_tokens(
        self, step: Step, inputs: dict[str, NDArray[Any]], compared: Compared
    ) -> Finding | None:
        targets = _target_tokens(compared)
        if targets is None:
            return None
        for name, tokens in inputs.items():
            self._offsets.setdefault(name, TokenOffset()).add(tokens, targets)
        repeated = {name: one for name in inputs if (one := self._offsets[name]).possible}
        if not repeated:
            return None
        name, offset = min(repeated.items(), key=lambda item: min(item[1].possible))
        alone = len(self.batches.inputs) == 1
        if offset.known == 0 and alone:
            return self._of_copies(step, name, targets, compared)
        if min(offset.possible) == 1 and alone:
            return self._of_next_tokens(step, name, inputs[name], compared)
        shifts = any(map(_LABELS.search, self.batches.inputs))
        later = (offset.known or 0) > 1 and (shifts or offset.least > 1)
        return self._of_later_tokens(step, name, offset) if later else None

    def _of_copies(
        self, step: Step, name: str, targets: NDArray[np.int64], compared: Compared
    ) -> Finding | None:
        seen, counted = self._offsets[name], targets >= 0
        right = _copied(compared.predictions.argmax(-1)[counted], targets[counted])
        if not counted.any() or right < _COPIED:
            return None
        return self._found(
            step,
            name,
            statistic="copied",
            value=right,
            threshold=_COPIED,
            seen=f"the targets of {seen.tokens} positions are the input tokens of the same "
            f"positions, and the model predicts {right:.0%} of them",
            cause="the targets are not shifted, or the tokens to predict are not hidden from the "
            "model: it copies its input, as only an autoencoder should",
            remedy="predict the next token: inputs tokens[:, :-1], targets tokens[:, 1:]; or mask "
            "the tokens to predict in the inputs, and ignore all others in the loss",
            evidence={"tokens": seen.tokens, "kinds": len(seen.kinds), "copied": right},
        )

    def _of_later_tokens(self, step: Step, name: str, seen: TokenOffset) -> Finding:
        return self._found(
            step,
            name,
            statistic="offset",
            value=seen.known or 0,
            threshold=1,
            seen=f"the targets of {seen.tokens} positions are the input tokens {seen.known} "
            "positions later, not the next ones",
            cause="the targets are shifted more than once, such as by the script and again by the "
            "model: the model never learns which token comes next",
            remedy="shift them once: models that are given labels and return the loss, as those of "
            "transformers, shift the labels themselves",
            evidence={"tokens": seen.tokens, "offset": seen.known},
            fault="corrupt_labels",
        )

    def _of_next_tokens(
        self, step: Step, name: str, inputs: NDArray[Any], compared: Compared
    ) -> Finding | None:
        numbers = compared.class_numbers
        if numbers is None or self._future.apart or inputs.ndim != 2:
            return None
        self._future.add(inputs, numbers, compared.predictions.argmax(-1))
        seen = self._future.seen()
        if seen is None:
            return None
        return self._found(
            step,
            name,
            statistic="accuracy",
            value=seen.rest,
            threshold=seen.last,
            seen=f"the model predicts {seen.rest:.0%} of the next tokens that are among its inputs "
            f"but {seen.last:.0%} at the last position, where the next token is not "
            f"({seen.targets} times); by the previous token alone, {seen.rest_by_pair:.0%} and "
            f"{seen.last_by_pair:.0%} can be predicted",
            cause="the model sees the tokens that it should predict: the attention has no causal "
            "mask, or a layer looks ahead (a bidirectional RNN, a centred convolution)",
            remedy="mask the future: is_causal=True in scaled_dot_product_attention, or an "
            "attention mask above the diagonal; check with a changed last token that earlier "
            "outputs stay the same",
            evidence=seen._asdict(),
        )

    def _of_columns(
        self, step: Step, name: str, inputs: NDArray[Any], compared: Compared
    ) -> Finding | None:
        labels = _targets(compared)
        if labels is None:
            return None
        classes = labels.dtype.kind == "i"
        if classes and not self._sentinels.over:
            found = self._sentinels.add(np.asarray(inputs, np.float64), labels)
            if found:
                return self._of_sentinels(step, name, found)
        if self._asked:
            self._done = self._sentinels.over or not classes
            return None
        if self._columns is None:
            self._columns = _Columns(inputs.shape[1], classes=labels.dtype.kind == "i")
        self._columns.add(np.asarray(inputs, np.float64), labels)
        rows = self._columns.rows
        if rows < self.rows or (self._columns.few and rows < _MOST * self.rows):
            return None
        self._asked = True
        columns = self._columns.leaking()
        if not columns:
            return None
        named = listed([f"column {column}" for column in columns])
        what = "one value per class" if self._columns.classes else "the values of the target"
        return self._found(
            step,
            name,
            statistic="rows",
            value=self._columns.rows,
            threshold=self.rows,
            seen=f"{named} of the inputs: {what} in {self._columns.rows} distinct rows",
            cause="an input was derived from the target, or is the target itself",
            remedy=f"remove {named} from the inputs, unless known before the target",
            evidence={"columns": columns, "rows": self._columns.rows},
        )

    def _of_sentinels(self, step: Step, name: str, columns: list[int]) -> Finding:
        named = listed([f"column {column}" for column in columns])
        return self._found(
            step,
            name,
            statistic="rows",
            value=self._sentinels.rows,
            threshold=self.rows,
            seen=f"{named} of the inputs: the same number in all rows of one class, and always "
            f"another number in the other class, in {self._sentinels.rows} distinct rows",
            cause="an input is known only of rows of one class, such as the days until an event, "
            "and was filled in with a fixed number for the others",
            remedy=f"remove {named} from the inputs, unless known before the target",
            evidence={"columns": columns, "rows": self._sentinels.rows},
        )

    def _of_windows(
        self, step: Step, name: str, inputs: NDArray[Any], compared: Compared
    ) -> Finding | None:
        self._end.add(inputs, compared.labels)
        features = self._end.features()
        if self._end.rows < self.rows or not features:
            return None
        return self._found(
            step,
            name,
            statistic="rows",
            value=self._end.rows,
            threshold=self.rows,
            seen=f"the targets of {self._end.rows} distinct windows are values of their last "
            f"positions ({listed([f'feature {feature}' for feature in features])})",
            cause="the windows end too late: they contain what should be predicted",
            remedy="end each window before its target: series[i : i + n] and series[i + n]",
            evidence={"features": features, "rows": self._end.rows},
        )

    def _found(self, step: Step, name: str, **told: Any) -> Finding:
        return self.found(step, since=0, tensor=name, confidence=0.95, **told)


def _target_tokens(compared: Compared) -> NDArray[np.int64] | None:
    """Return labels as tokens, int64 [...]; negative ones are ignored by the loss.

    None unless each prediction has one.
    """
    labels, classes = compared.labels, compared.classes
    ignored = labels.dtype.kind == "i" and labels.shape == compared.predictions.shape[:-1]
    if not ignored or not labels.min() < 0 or labels.max() >= classes:
        return compared.class_numbers
    return labels.astype(np.int64)


def _copied(predicted: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    """Return the share of right predictions, int64 [n], without the token that is wrong most often.

    That may be padding, which the loss leaves out.
    """
    wrong = predicted != targets
    if not wrong.any():
        return 1.0
    padding = np.bincount(targets[wrong]).argmax()
    rest = targets != padding
    return float((~wrong[rest]).mean()) if rest.any() else 0.0


def _targets(compared: Compared) -> NDArray[Any] | None:
    """Return class numbers, int64 [rows], or targets of a regression, float64 [rows]; else None."""
    numbers = compared.class_numbers
    if numbers is not None:
        return numbers if numbers.ndim == 1 else None
    labels = np.asarray(compared.labels)
    if labels.size != len(labels):
        return None
    labels = labels.reshape(-1)
    if set(np.unique(labels).tolist()) <= {0, 1}:
        return labels.astype(np.int64)
    return labels.astype(np.float64)


class _Columns:
    """Columns of a table that tell the target alone; a pure fold in bounded memory.

    Args:
        classes: whether the targets are class numbers.
    """

    def __init__(self, columns: int, *, classes: bool) -> None:
        self.classes = classes
        self._candidates = np.arange(columns)
        self._seen: set[bytes] = set()
        # For each class the number of rows and the values of the candidates, float64 [candidates].
        self._values: dict[float, tuple[int, NDArray[np.float64]]] = {}

    @property
    def rows(self) -> int:
        """Number of distinct rows so far."""
        return len(self._seen)

    @property
    def few(self) -> bool:
        """Whether a class has too few rows so far, or there are too few classes or targets."""
        least, kinds = (_ROWS_OF_CLASS, 2) if self.classes else (1, _VALUES)
        counts = [count for count, _ in self._values.values()]
        return len(counts) < kinds or min(counts) < least

    def add(self, inputs: NDArray[np.float64], targets: NDArray[Any]) -> None:
        """Process a batch.

        Args:
            inputs: float64 [rows, columns].
            targets: [rows].
        """
        self._seen.update(row_digests(inputs))
        for target in np.unique(targets):
            chosen = inputs[targets == target][:, self._candidates]
            default = (0, chosen[0] if self.classes else np.full(len(self._candidates), target))
            count, values = self._values.get(float(target), default)
            same = (chosen == values).all(0)
            self._keep(same)
            self._values[float(target)] = (count + len(chosen), values[same])

    def leaking(self) -> list[int]:
        """Return the columns that tell the target; [] if there are none."""
        if self.few:
            return []
        table = np.stack([values for _, values in self._values.values()])
        telling = (table != table[0]).any(0)
        distinct = len(np.unique(table[:, telling], axis=0)) == len(table)
        return self._candidates[telling].tolist() if telling.any() and distinct else []

    def _keep(self, same: NDArray[np.bool_]) -> None:
        """Keep candidates, bool [candidates]."""
        self._candidates = self._candidates[same]
        self._values = {
            target: (count, values[same]) for target, (count, values) in self._values.items()
        }


class _WindowEnd:
    """Compares the targets of a forecast with the last values of its windows; a pure fold.

    A window that ends one step late contains what it should predict. Then each target is, in all
    rows and bit for bit, a value of the last position. Autoencoders have a target for each position
    of the window, and are left out.

    Attributes:
        apart: whether the targets are other values: the question does not arise.
    """

    def __init__(self) -> None:
        self.apart = False
        self._seen: set[bytes] = set()
        # For each axis, whether a target was a feature so far, bool [targets, features].
        self._same: dict[int, NDArray[np.bool_]] = {}
        self._values: list[set[float]] = []

    @property
    def rows(self) -> int:
        """Number of distinct windows so far."""
        return len(self._seen)

    def add(self, inputs: NDArray[Any], labels: NDArray[Any]) -> None:
        """Process a batch.

        Args:
            inputs: windows, [rows, ., .].
            labels: targets, [rows] or [rows, targets].
        """
        if labels.dtype.kind != "f" or labels.ndim > 2 or len(inputs) != len(labels):
            self.apart = True
            return
        targets = labels.reshape(len(labels), -1)
        for axis in _AXES:
            last = inputs.take(-1, axis)
            if inputs.shape[axis] < _LENGTH or targets.shape[1] * last.shape[1] > _PAIRS:
                continue
            same = (targets[:, :, None] == last[:, None, :]).all(0)
            before = self._same.get(axis, np.ones_like(same) if not self._seen else None)
            if before is not None and before.shape == same.shape:
                self._same[axis] = before & same
        self._same = {axis: same for axis, same in self._same.items() if same.any(1).all()}
        self.apart = not self._same
        if self.apart:
            return
        self._seen.update(row_digests(inputs))
        self._values = self._values or [set() for _ in range(targets.shape[1])]
        for known, column in zip(self._values, targets.T, strict=True):
            if len(known) < _VALUES:
                known.update(column.tolist())

    def features(self) -> list[int]:
        """Return the feature that each target is, at the last position; [] if that is open."""
        if self.apart or not self._values or min(len(value) for value in self._values) < _VALUES:
            return []
        same = next(iter(self._same.values()))
        return [int(one) for one in same.argmax(1)]
