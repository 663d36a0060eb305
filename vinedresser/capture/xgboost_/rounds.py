"""What is taken after a round: a train step and, of the other data, an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xgboost import Booster

from vinedresser.capture.config.due_evaluations import DueEvaluations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.capture.xgboost_.booster_taker import BoosterTaker
from vinedresser.capture.xgboost_.data import DataSet
from vinedresser.capture.xgboost_.evaluations import EvalsLog, is_training_set, take_metrics
from vinedresser.capture.xgboost_.objectives import BoosterInfo

__all__ = ["Rounds"]


class Rounds:
    """The rounds of one training.

    Args:
        session: takes what is seen.
        model: a booster, or the folds of a cross-validation.
        train: data sets of the training data; those of a cross-validation are found.
        validation: evaluation sets likewise.
        training_set: the evaluation set that is the training data; None: found by its name.
        loss: the metric that is the loss; None: the objective's.
        rows: rows of a data set that are looked at, at the most.
        shap_rows: rows for Shapley values, at the most.
    """

    def __init__(
        self,
        session: Session,
        model: Any,
        train: Sequence[DataSet],
        validation: Sequence[DataSet],
        *,
        training_set: str | None,
        loss: str | None,
        rows: int,
        shap_rows: int,
    ) -> None:
        self._session = session
        self._training_set = training_set
        self._evaluations = DueEvaluations()
        self._first = True
        copier, shield = session.copier(ArrayCopier), session.shield
        folds = getattr(model, "cvfolds", None)
        if folds is None:
            self.boosters: dict[str, Booster] = {"": model}
            taker = BoosterTaker(copier, shield, train, validation, shap_rows=shap_rows)
            self._takers = {"": taker}
        else:
            self.boosters = {f"fold{number}.": fold.bst for number, fold in enumerate(folds)}
            self._takers = {
                prefix: BoosterTaker(
                    copier,
                    shield,
                    [DataSet("train", fold.dtrain, rows)],
                    [DataSet("test", fold.dtest, rows)],
                    shap_rows=shap_rows,
                    prefix=prefix,
                )
                for prefix, fold in zip(self.boosters, folds, strict=True)
            }
        self._validates = bool(folds or validation)
        self._loss = loss
        # Known when a round has been done.
        self._info: BoosterInfo | None = None

    @property
    def done(self) -> int:
        """Rounds that the model has."""
        return next(iter(self.boosters.values())).num_boosted_rounds()

    def names(self) -> list[str]:
        """Return the names of what there is to capture beside metrics."""
        return [name for taker in self._takers.values() for name in taker.names()]

    def take(self, log: EvalsLog) -> None:
        """Take what is due after a round; the train step is still to be ended.

        Args:
            log: metrics of all rounds so far.
        """
        recorder = self._session.recorder
        if self._info is None:
            self._info = BoosterInfo.of(next(iter(self.boosters.values())))
            self._loss = self._loss or self._info.loss
        trains = {name: is_training_set(name, self._training_set) for name in log}
        others = [name for name, train in trains.items() if not train]
        if others or self._validates:
            due = self._evaluations.at(recorder.config.due(recorder.steps, "eval"), recorder.steps)
            recording = recorder.recording("eval") if due else None
            if recording is not None:
                recording.due = due
                self._take_metrics(recording, log, others)
                for prefix, taker in self._takers.items():
                    taker.evaluate(recording, self.boosters[prefix], self._info)
                recorder.resume_training()
        recording = recorder.recording("train")
        if recording is None:
            return
        known = [name for name, train in trains.items() if train]
        self._take_metrics(recording, log, known)
        for prefix, taker in self._takers.items():
            taker.take(recording, self.boosters[prefix], self._info)
        if self._first:
            self._first = False
            self._complain(recording, log, known)

    def _take_metrics(self, recording: Recording, log: EvalsLog, sets: Sequence[str]) -> None:
        for name in sets:
            take_metrics(recording, log[name], name, self._loss)

    def _complain(self, recording: Recording, log: EvalsLog, known: Sequence[str]) -> None:
        """Say why there is no loss, and what brings one."""
        # Not every objective has a loss among the metrics; then nothing is amiss.
        if not recording.due.ask("losses/train") or self._loss is None:
            return
        report = self._session.shield.report
        metrics = [metric for name in known for metric in log[name]]
        if not log:
            report(
                "no losses, no metrics: XGBoost evaluates nothing; give xgboost.train "
                "evals=[(dtrain, 'train')], or fit of an estimator eval_set=[(X, y)]"
            )
        elif not known:
            report(
                f"no losses of the training: of the evaluation sets ({', '.join(log)}) none is "
                "known to be the training data; evaluate that too, or say which it is: "
                f"hook.xgboost(training_set={next(iter(log))!r})"
            )
        elif not any(name.startswith("losses/") for name in recording.names()):
            report(
                f"no losses: {self._loss} is not among the metrics ({', '.join(metrics)}); add it "
                f"to eval_metric, or say which is the loss: hook.xgboost(loss={metrics[-1]!r})"
            )
