"""Recording of a round: a train step and an evaluation, with the metrics of XGBoost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xgboost import Booster

from vinedresser.capture.recording.evaluations import Evaluations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.capture.xgboost_.booster_info import BoosterInfo
from vinedresser.capture.xgboost_.booster_recorder import BoosterRecorder
from vinedresser.capture.xgboost_.data import DataSet

__all__ = ["EvalsLog", "RoundRecorder"]

# {set: {metric: values by round}}; in cross-validation each value is (mean, standard deviation).
EvalsLog = Mapping[str, Mapping[str, Sequence[Any]]]


class RoundRecorder:
    """Records the rounds of one training.

    Args:
        model: a booster, or the folds of a cross-validation.
        train: training data; not needed for a cross-validation.
        validation: evaluation sets; not needed for a cross-validation.
        training_set: name of the evaluation set that is the training data; None to detect it by its
            name.
        loss: the metric that is the loss; None for that of the objective.
        rows: maximum number of rows used of a data set.
        shap_rows: maximum number of rows for Shapley values.
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
        self._evaluations = Evaluations(session.recorder)
        self._first = True
        copier, shield = session.copier(ArrayCopier), session.shield
        folds = getattr(model, "cvfolds", None)
        if folds is None:
            self.boosters: dict[str, Booster] = {"": model}
            recorder = BoosterRecorder(
                copier,
                shield,
                train,
                validation,
                shap_rows=shap_rows,
                advises=not session.detected,
            )
            self._recorders = {"": recorder}
        else:
            self.boosters = {f"fold{number}.": fold.bst for number, fold in enumerate(folds)}
            self._recorders = {
                prefix: BoosterRecorder(
                    copier,
                    shield,
                    [DataSet("train", fold.dtrain, rows)],
                    [DataSet("test", fold.dtest, rows)],
                    shap_rows=shap_rows,
                    advises=False,
                    prefix=prefix,
                )
                for prefix, fold in zip(self.boosters, folds, strict=True)
            }
        self._validates = bool(folds or validation)
        # Others are told to have XGBoost evaluate it.
        self._computes_loss = session.detected
        self._loss = loss
        # Set after the first round.
        self._info: BoosterInfo | None = None

    @property
    def done(self) -> int:
        """Number of rounds of the model."""
        return next(iter(self.boosters.values())).num_boosted_rounds()

    def names(self) -> list[str]:
        """Return the names of the tensors that can be captured, without metrics."""
        return [name for recorder in self._recorders.values() for name in recorder.names()]

    def record(self, log: EvalsLog) -> None:
        """Record what is due after a round; the caller ends the train step.

        Args:
            log: metrics of all rounds so far.
        """
        recorder = self._session.recorder
        if self._info is None:
            self._info = BoosterInfo.of(next(iter(self.boosters.values())))
            reported = {metric for metrics in log.values() for metric in metrics}
            self._loss = self._loss or self._info.loss_among(reported)
        known = [name for name in log if self._is_training_set(name)]
        others = [name for name in log if name not in known]
        if others or self._validates:
            recording = self._evaluations.recording()
            if recording is not None:
                self._record_metrics(recording, log, others)
                for prefix, one in self._recorders.items():
                    one.record_evaluation(recording, self.boosters[prefix], self._info)
                recorder.resume_training()
        recording = recorder.recording("train")
        if recording is None:
            return
        self._record_metrics(recording, log, known)
        for prefix, one in self._recorders.items():
            lacks = not any(self._loss in log[name] for name in known)
            if self._computes_loss and self._loss is not None and lacks:
                one.record_loss(recording, self.boosters[prefix], self._info, self._loss)
            one.record_training(recording, self.boosters[prefix], self._info)
        if self._first:
            self._first = False
            self._report_missing_loss(recording, log, known)

    def _is_training_set(self, name: str) -> bool:
        given = self._training_set
        return "train" in name.lower() if given is None else name == given

    def _record_metrics(self, recording: Recording, log: EvalsLog, sets: Sequence[str]) -> None:
        for name in sets:
            _record_set(recording, log[name], name, self._loss)

    def _report_missing_loss(
        self, recording: Recording, log: EvalsLog, known: Sequence[str]
    ) -> None:
        """Report why no loss is captured and how to get one."""
        # Some objectives have no loss among the metrics.
        if not recording.due.ask("losses/train") or self._loss is None or self._session.detected:
            return
        report = self._session.shield.report
        metrics = [metric for name in known for metric in log[name]]
        if not log:
            report(
                "no losses, no metrics: XGBoost evaluates nothing; pass evals=[(dtrain, 'train')] "
                "to xgboost.train, or eval_set=[(X, y)] to an estimator's fit"
            )
        elif not known:
            report(
                "no losses of the training: none of the evaluation sets "
                f"({', '.join(log)}) is known to be the training data; add the training data to "
                f"them, or name it: hook.xgboost(training_set={next(iter(log))!r})"
            )
        elif not any(name.startswith("losses/") for name in recording.names()):
            report(
                f"no losses: {self._loss} is not among the metrics ({', '.join(metrics)}); add it "
                f"to eval_metric, or name the loss: hook.xgboost(loss={metrics[-1]!r})"
            )


def _record_set(
    recording: Recording, metrics: Mapping[str, Sequence[Any]], data: str, loss: str | None
) -> None:
    """Record the latest value of each metric of one evaluation set.

    Args:
        recording: receives ``metrics/<set>-<metric>``, and ``losses/<set>-<metric>`` for the loss.
        metrics: values by round, by metric.
        loss: the metric that is the loss; None if no metric is.
    """
    for metric, value in _latest(metrics):
        kinds = ["metrics"]
        # A metric may have a parameter, as in tweedie-nloglik@1.5.
        if loss is not None and metric.partition("@")[0] == loss.partition("@")[0]:
            kinds.append("losses")
        for kind in kinds:
            name = f"{kind}/{data}-{metric}"
            if recording.due.ask(name):
                recording.add_scalar(name, value)


def _latest(metrics: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, float]]:
    """Yield name and latest value of each metric; for a mean over folds, also the deviation."""
    for metric, values in metrics.items():
        if not values:
            continue
        if isinstance(values[-1], tuple):
            mean, deviation = values[-1]
            yield metric, float(mean)
            yield f"{metric}-std", float(deviation)
        else:
            yield metric, float(values[-1])
