"""Rule: a class that is much rarer than another is not learned."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least, require_between
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.outcomes.fit import Fit, error_of_share
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.store.finding import CAUGHT_UP, MISSED, Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Checks whose predictions are counted, and the minimum number of rows of a class among them.
_CHECKS = 64
_ROWS = 10
_SURE = 2.0
# Number of reports of a class; after the last one, it is not reported to have caught up.
_MOST_REPORTS = 3
# The frequent class is learned first. The other classes may need this many steps, or this share of
# a run.
_PATIENCE = 300
_SHARE = 0.5
_NAMED = 3
# With more classes, such as the words of a language, a long tail of rare ones is normal.
_MOST_CLASSES = 20
# Minimum number of evaluated rows, and of those of a class, and the share of the rows of the other
# classes that must be predicted right there: else more is wrong than the shares of the classes.
_EVALUATED, _OF_CLASS, _OTHERS_RIGHT = 48, 10, 0.5
# Share of these classes' evaluated rows that are mispredicted.
_MISSED = 0.5


class ClassImbalance(OnceRule):
    """A class more than ``imbalance`` times rarer than the most frequent one is not learned.

    The rule counts the labels of all checked train steps (at least ``samples``) and the predictions
    of the last 64 checks. Fires when more than ``misprediction`` of the rows of a rare class are
    predicted as another class, by two standard errors and over at least 10 rows, and the share is
    not decreasing (from the first to the second half of these checks, by two standard errors).
    Fires after half of the run, after 300 steps if its length is unknown, or at its end, because
    the most frequent class is learned first even in trainings that learn the others later.

    Does not apply to tokens, several for each row of input tokens: most words of a language are
    rare, and learned late.

    With two classes this also requires that the training is not good (`Outcome`): a rare class may
    be ranked well and still lie below 0.5.

    Fires also at the end of a run if the classes that are rare in the training have a share of the
    evaluated rows (of the last evaluation, at least 48, 10 of them of these classes) of more than
    ``imbalance`` times that of the training rows, more than half of them are predicted as another
    class, by two standard errors, and most of the other rows as their own.

    Fires also at the end of a run of XGBoost if ``scale_pos_weight`` makes one of two classes weigh
    more than ``imbalance`` times as much as the other, which weighs less than without it, and more
    than half of the rows of that other are predicted wrongly in the second half of these checks, by
    two standard errors.

    After a finding in the training, the rule reports once for each of these classes that it has
    caught up, as "info": over at least 10 rows of the last 64 checks since then, the mispredicted
    share is below half of ``misprediction`` by two standard errors. If such a class is not learned
    any more, by its last 20 rows as above, it is reported again, and again when it has caught up.
    After the third report it is not: a boost stays, since the class is lost without it.

    In a training that was resumed, classes that were boosted before are taken for reported ones.

    Source: ClassImbalance of the predecessor project, which requires either the ratio of the counts
    or the mispredicted share.

    Args:
        imbalance: count of the most frequent class divided by the count of the rare class.
        misprediction: share of mispredicted rows of the rare class.
        samples: minimum number of labels.
    """

    severity = "warning"
    fault = "class_imbalance"
    stage = "data"
    # Classes that the training hardly has are missed in evaluations, as if labels were wrong there.
    consequences = (
        "classifier_confusion",
        "corrupt_labels",
        "not_learning",
        "overfitting",
        "underfitting",
    )
    position = 70
    predecessors = ("class_imbalance",)
    left_out_of = ("regression", "autoencoder", "language_model", "adversarial")
    modes = ("train", "eval")

    def __init__(
        self, imbalance: float = 10.0, misprediction: float = 0.7, samples: int = 500
    ) -> None:
        require_above(1, imbalance=imbalance)
        require_between(0, 1, misprediction=misprediction)
        require_at_least(1, samples=samples)
        self.imbalance = imbalance
        self.misprediction = misprediction
        self.samples = samples
        self.batches = Batches()
        self.needs = self.batches.required("labels", "predictions")
        self.fit = Fit()
        self.outcome = Outcome()
        self._names: list[str] = []
        # Weight of rows of the second class in a booster.
        self._weight = 1.0
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._matrices: dict[str, deque[NDArray[np.int64]]] = {}
        self._last: Step | None = None
        # Classes that were reported in the training, by loss: those that have not caught up, and
        # those that have.
        self._behind: dict[str, set[int]] = {}
        self._recovered: dict[str, set[int]] = {}
        # How often they were reported, those of before a resumption included.
        self._reports: Counter[int] = Counter()
        self._earlier: dict[str, list[float]] = {}
        # Confusion matrix of the last evaluation by loss, and its step.
        self._evaluated: dict[str, NDArray[np.int64]] = {}
        self._evaluated_at = -1

    def on_record(self, info: RunRecord) -> None:
        """Read the class names, and which of them were boosted before."""
        self._names = list(info.classes)
        settings = info.losses.get("objective", {}).get("settings", {})
        self._weight = float(settings.get("scale_pos_weight") or 1.0)
        self._earlier = info.boosted

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._behind and step.rank == 0 and step.mode == "train":
            self._count(step)
            return self._once(self._caught_up(step) or self._lost(step))
        return super().update(step)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if self.batches.of_text:
            # In a language, most words are rare, and learned late.
            self._done = True
            return None
        if step.mode == "eval":
            self._evaluate(step)
            return None
        self._count(step)
        enough = step.step >= (
            _PATIENCE if self.expected_steps is None else _SHARE * self.expected_steps
        )
        return self._finding(step) if enough and self.batches.compared else None

    def _count(self, step: Step) -> None:
        """Count the labels and predictions of a train step."""
        for compared in self.batches.compared:
            matrix = self._matrix(compared)
            if matrix is None:
                continue
            self._last = step
            if compared.loss not in self._counts:
                self._know_earlier(compared.loss)
            counts = self._counts.setdefault(compared.loss, np.zeros(len(matrix), np.int64))
            if counts.shape == matrix.shape[:1]:
                counts += matrix.sum(1)
                self._matrices.setdefault(compared.loss, deque(maxlen=_CHECKS)).append(matrix)

    def _know_earlier(self, loss: str) -> None:
        """Take classes that were boosted before a resumption for reported ones."""
        for name, (boost, times) in self._earlier.items():
            if name not in self._names:
                continue
            number = self._names.index(name)
            self._reports[number] = int(times)
            self._behind.setdefault(loss, set())
            known = self._behind if boost > 1 else self._recovered
            known.setdefault(loss, set()).add(number)

    def at_end(self) -> Finding | None:
        """Return the finding at the end of the run."""
        if self._last is None:
            return None
        return (
            self._finding(self._last)
            or self._rare_in_training(self._last)
            or self._outweighed(self._last)
        )

    def _evaluate(self, step: Step) -> None:
        """Count the labels and predictions of the last evaluation."""
        for compared in self.batches.compared:
            matrix = self._matrix(compared)
            if matrix is None:
                continue
            if step.step != self._evaluated_at:
                self._evaluated, self._evaluated_at = {}, step.step
            before = self._evaluated.get(compared.loss)
            if before is not None and before.shape == matrix.shape:
                matrix = matrix + before
            self._evaluated[compared.loss] = matrix

    def _rare_in_training(self, step: Step) -> Finding | None:
        """Return the finding of classes that are rare in the training, but not in evaluations."""
        for loss, counts in self._counts.items():
            matrix = self._evaluated.get(loss)
            if matrix is None or len(matrix) != len(counts) or counts.sum() < self.samples:
                continue
            rare = counts * self.imbalance < counts.max()
            if self._missed_in_evaluation(counts, matrix, rare):
                rows = matrix.sum(1)
                missed = [int(one) for one in np.flatnonzero(rare & (rows > 0))]
                return self._report_shares(step, loss, counts, matrix, missed)
        return None

    def _outweighed(self, step: Step) -> Finding | None:
        """Return the finding that the weight of one of two classes removes the other."""
        for loss, counts in self._counts.items():
            if self._weight == 1 or len(counts) != 2 or counts.sum() < self.samples:
                continue
            if not counts.all():
                continue
            balanced = float(counts[0] / counts[1])
            excess = max(self._weight / balanced, balanced / self._weight)
            lost = 0 if self._weight > balanced else 1
            if (self._weight > 1) == (lost == 1):
                # It is rare, and the weight helps it, if not enough.
                continue
            recent = list(self._matrices[loss])[len(self._matrices[loss]) // 2 :]
            wrong, rows = _missed_of(np.sum(recent, axis=0), lost)
            if excess > self.imbalance and rows >= _ROWS and _at_least(wrong, rows) > _MISSED:
                share = wrong / rows
                return self.found(
                    step,
                    since=0,
                    tensor=self.batches.tensor("predictions", loss),
                    statistic="weight",
                    value=self._weight,
                    threshold=balanced,
                    confidence=0.9,
                    seen=f"{share:.0%} of the rows of {self._name(lost)} are mispredicted, and "
                    f"scale_pos_weight = {self._weight:,.6g} makes the other class weigh "
                    f"{excess:,.3g} times as much",
                    cause="the weight of the positive class does not fit the frequencies of the "
                    "classes",
                    remedy=f"set scale_pos_weight to {balanced:.2g} (rows of class 0 per row of "
                    "class 1), or leave it out",
                    evidence={"counts": counts.tolist(), "mispredicted": {str(lost): share}},
                )
        return None

    def _missed_in_evaluation(
        self, counts: NDArray[np.int64], matrix: NDArray[np.int64], rare: NDArray[np.bool_]
    ) -> bool:
        """Return whether some classes are frequent in an evaluation, and missed there.

        Args:
            counts: number of training rows of each class, [classes].
            matrix: confusion matrix of an evaluation, [true classes, predicted classes].
            rare: whether a class is rare in the training, [classes].
        """
        rows, right = matrix.sum(1), matrix.diagonal()
        total, some = int(rows.sum()), int(rows[rare].sum())
        if total < _EVALUATED or some < _OF_CLASS:
            return False
        # One row more, as if the next one were of these classes.
        trained = (int(counts[rare].sum()) + 1) / (int(counts.sum()) + 1)
        wrong = some - int(right[rare].sum())
        return bool(
            some > self.imbalance * trained * total
            and _at_least(wrong, some) > _MISSED
            and right[~rare].sum() > _OTHERS_RIGHT * rows[~rare].sum()
        )

    def _report_shares(
        self,
        step: Step,
        loss: str,
        counts: NDArray[np.int64],
        matrix: NDArray[np.int64],
        missed: list[int],
    ) -> Finding:
        rows = matrix.sum(1)
        shares = {one: 1 - matrix[one, one] / rows[one] for one in missed}
        missed = sorted(missed, key=lambda one: -int(rows[one]))
        words = ", ".join(
            f"{self._name(one)} ({counts[one] / counts.sum():.1%} of the training rows, "
            f"{rows[one] / rows.sum():.0%} of the evaluated rows, {shares[one]:.0%} mispredicted)"
            for one in missed[:_NAMED]
        )
        trained = (counts[missed].sum() + 1) / (counts.sum() + 1)
        ratio = float(rows[missed].sum() / rows.sum() / trained)
        return self.found(
            step,
            since=0,
            tensor=self.batches.tensor("labels", loss),
            statistic="imbalance",
            value=ratio,
            threshold=self.imbalance,
            confidence=0.85,
            seen=f"classes that are rare in the training only: {words}",
            cause="the training rows have other shares of the classes than the evaluated rows: "
            "they were filtered, sorted before they were split, or sampled with the wrong weights",
            remedy="compare the number of rows of each class in both sets; shuffle the rows before "
            "splitting them, or split each class alike (stratify)",
            evidence={
                "counts": counts.tolist(),
                "evaluated": rows.tolist(),
                MISSED: {str(one): float(share) for one, share in shares.items()},
            },
        )

    def _matrix(self, compared: Compared) -> NDArray[np.int64] | None:
        """Return the confusion matrix of a batch, int64 [classes, classes]; None if there is none.

        Includes binary tasks with one output.
        """
        matrix = compared.confusion
        series = self.fit.of("train").get(compared.loss)
        if matrix is not None:
            return matrix if len(matrix) <= _MOST_CLASSES else None
        if series is None or series.task != "binary":
            return None
        limit = 0.0 if series.identity.takes == "logits" else 0.5
        predicted = (compared.predictions > limit).ravel().astype(np.int64)
        truth = (np.asarray(compared.labels, np.float64) > 0.5).ravel().astype(np.int64)
        return np.bincount(truth * 2 + predicted, minlength=4).reshape(2, 2)

    def _finding(self, step: Step) -> Finding | None:
        for loss, counts in self._counts.items():
            matrices = list(self._matrices.get(loss, ()))
            if counts.sum() < self.samples:
                continue
            rare = np.flatnonzero((counts > 0) & (counts * self.imbalance < counts.max()))
            missed = self._missed(rare[counts[rare].argsort(kind="stable")].tolist(), matrices)
            if missed:
                return self._report(step, loss, matrices, missed)
        return None

    def _lost(self, step: Step) -> Finding | None:
        """Return the finding that classes which had caught up are not learned any more."""
        for loss, recovered in self._recovered.items():
            matrices = list(self._matrices.get(loss, ()))
            missed = [
                one for one in sorted(recovered) if self._missed([one], _recent(matrices, one))
            ]
            if missed:
                recovered.difference_update(missed)
                return self._report(step, loss, matrices, missed, again=True)
        return None

    def _caught_up(self, step: Step) -> Finding | None:
        """Return the finding that classes which were not learned are learned by now."""
        for loss, behind in self._behind.items():
            matrix = np.sum(list(self._matrices.get(loss, ())), axis=0)
            shares = {}
            for one in behind if np.ndim(matrix) == 2 else ():
                if self._reports[one] >= _MOST_REPORTS:
                    continue
                wrong, rows = _missed_of(matrix, one)
                # The share of right ones is certainly above the rest.
                if rows >= _ROWS and _at_least(rows - wrong, rows) > 1 - self.misprediction / 2:
                    shares[one] = wrong / rows
            if shares:
                behind.difference_update(shares)
                self._recovered.setdefault(loss, set()).update(shares)
                return self._report_caught_up(step, loss, shares)
        return None

    def _report_caught_up(self, step: Step, loss: str, shares: dict[int, float]) -> Finding:
        words = ", ".join(f"{self._name(one)} ({share:.0%})" for one, share in shares.items())
        return self.found(
            step,
            since=step.step,
            tensor=self.batches.tensor("labels", loss),
            statistic="mispredicted",
            value=max(shares.values()),
            threshold=self.misprediction / 2,
            confidence=0.9,
            seen=f"classes that were not learned are learned by now, with their share of "
            f"mispredicted rows: {words}",
            cause="the training has seen enough of them",
            remedy="nothing; a boost of these classes can be taken back",
            evidence={CAUGHT_UP: {str(one): share for one, share in shares.items()}},
            severity="info",
            fault="",
        )

    def _missed(self, classes: Sequence[int], matrices: list[NDArray[np.int64]]) -> list[int]:
        """Return which of some classes are not learned; none if the training is good so."""
        if len(matrices) < 2:
            return []
        halves = [
            np.sum(part, axis=0)
            for part in (matrices[: len(matrices) // 2], matrices[len(matrices) // 2 :])
        ]
        missed = [
            class_
            for class_ in classes
            if self._not_learned(*(_missed_of(half, class_) for half in halves))
        ]
        good = missed and len(halves[0]) == 2 and self.outcome.verdict().kind == "good"
        return [] if good else missed

    def _not_learned(self, before: tuple[int, int], after: tuple[int, int]) -> bool:
        """Return whether too many rows of a class are mispredicted, and not fewer than before.

        Args:
            before: mispredicted rows and all rows in the first half of the checks.
            after: the same for the second half.
        """
        rows = before[1] + after[1]
        if rows < _ROWS or not before[1] or not after[1]:
            return False
        wrong = before[0] + after[0]
        error = error_of_share(wrong / rows, rows)
        fall = before[0] / before[1] - after[0] / after[1]
        falls = fall > _SURE * error * math.sqrt(rows / before[1] + rows / after[1])
        return _at_least(wrong, rows) > self.misprediction and not falls

    def _report(
        self,
        step: Step,
        loss: str,
        matrices: list[NDArray[np.int64]],
        missed: list[int],
        *,
        again: bool = False,
    ) -> Finding:
        self._behind.setdefault(loss, set()).update(missed)
        self._reports.update(missed)
        self._matrices[loss].clear()
        counts, matrix = self._counts[loss], np.sum(matrices, axis=0)
        most = int(counts.argmax())
        shares = {one: 1 - matrix[one, one] / matrix[one].sum() for one in missed}
        words = ", ".join(
            f"{self._name(one)} ({counts[one] / counts.sum():.1%} of the labels, {shares[one]:.0%} "
            "mispredicted)"
            for one in missed[:_NAMED]
        )
        ratio = float(counts[most] / counts[missed[0]])
        weights = ", ".join(
            f"{self._name(one)} {counts[most] / counts[one]:.3g}" for one in missed[:_NAMED]
        )
        return self.found(
            step,
            since=step.step,
            tensor=self.batches.tensor("labels", loss),
            statistic="imbalance",
            value=ratio,
            threshold=self.imbalance,
            confidence=0.8,
            seen=f"classes not learned{' any more' * again}, out of {counts.sum()} labels: "
            f"{words}; {self._name(most)} is {ratio:.3g} times as frequent",
            cause="such a rare class contributes little to the mean loss, so ignoring it costs "
            "little",
            remedy=f"use class weights ({weights}; {self._name(most)} 1) or sample the rows of "
            "rare classes more often; evaluate the recall of each class instead of accuracy",
            evidence={
                "counts": counts.tolist(),
                MISSED: {str(one): float(share) for one, share in shares.items()},
            },
        )

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else f"class {number}"


def _recent(matrices: list[NDArray[np.int64]], number: int) -> list[NDArray[np.int64]]:
    """Return the last matrices that have enough rows of a class for two halves.

    With all of them, the many rows of a class that was boosted would outweigh those since then.
    """
    rows = np.cumsum([matrix[number].sum() for matrix in reversed(matrices)])
    return matrices[-1 - int(np.searchsorted(rows, 2 * _ROWS)) :]


def _at_least(some: int, rows: int) -> float:
    """Return the share of some rows among others, less two standard errors."""
    share = some / rows
    return share - _SURE * error_of_share(share, rows)


def _missed_of(matrix: NDArray[np.int64], number: int) -> tuple[int, int]:
    """Return the number of mispredicted rows of a class, and of all its rows."""
    rows = int(matrix[number].sum())
    return rows - int(matrix[number, number]), rows
