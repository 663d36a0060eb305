"""What is taken of an estimator when it has been fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.adapters.tree_table import keep_trees, tree_names
from vinedresser.capture.config.due_evaluations import DueEvaluations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.capture.sklearn_.inner_estimator import Inner, unwrapped
from vinedresser.capture.sklearn_.learned_parameters import learned_figures, learned_parameters
from vinedresser.capture.sklearn_.prediction import (
    FIGURES,
    Prediction,
    class_numbers,
    figures,
    predict,
)
from vinedresser.capture.sklearn_.sample import Sample, dense
from vinedresser.capture.sklearn_.stages import Stages, stages_of

__all__ = ["Taker"]

_IMPORTANCE = "feature_importance/impurity"


class Taker:
    """Takes what is due of a fitted estimator.

    Args:
        session: takes what is seen.
        estimator: fitted again and again, or fed batch by batch.
        validation: rows to evaluate on; None without.
        rows: of a larger batch or data set so many rows are looked at.
    """

    def __init__(
        self, session: Session, estimator: Any, validation: Sample | None, rows: int
    ) -> None:
        self._session = session
        self._estimator = estimator
        self._validation = validation
        self._rows = rows
        self._copier = session.copier(ArrayCopier)
        self._evaluations = DueEvaluations()
        # A fault in taking one thing must not keep the others out.
        guard = session.shield.guard
        self._rows_of = guard("taking predictions", self._take_rows)
        self._learned_of = guard("taking what was learned", self._take_learned)
        self._trees_of = guard("taking trees", self._take_trees)
        self._importance_of = guard("taking feature importance", self._take_importance)
        self._next = guard("predicting stage by stage", _next)
        # Stages of the fit before, which a warm start goes on from.
        self._seen = 0

    def batch(self, x: Any, y: Any) -> None:
        """Take a call of partial_fit; the train step is still to be ended."""
        inner = unwrapped(self._estimator)
        recording = self._session.recorder.recording("train")
        if recording is not None:
            sample = Sample.of(x, y, self._rows)
            self._rows_of(recording, sample, None)
            self._take_figures(recording, self._said(inner))
            self._learned_of(recording, inner)
        if self._validation is not None:
            evaluation = self._evaluation(narrow=True)
            if evaluation is not None:
                self._rows_of(evaluation, self._validation, None)
                self._session.recorder.resume_training()

    def fit(self, x: Any, y: Any) -> None:
        """Take a whole fit, stage by stage; the train step of the last is still to be ended."""
        inner = unwrapped(self._estimator)
        stages = stages_of(inner.estimator) or Stages(1)
        first = self._seen if getattr(inner.estimator, "warm_start", False) else 0
        self._seen = stages.count
        # A fit that has added nothing is a step all the same.
        first = min(first, stages.count - 1)
        sample = Sample.of(x, y, self._rows)
        trained = self._staged(stages, inner, sample)
        validated = self._staged(stages, inner, self._validation)
        for stage in range(stages.count):
            predictions = self._next(trained), self._next(validated)
            if stages.count > 1:
                self._session.recorder.forget_time()
            if stage >= first:
                if stage > first:
                    self._session.recorder.end_train_step()
                self._take_stage(inner, stages, stage, sample, predictions[0])
                self._evaluate_stage(inner, stages, stage, predictions[1])

    def _take_stage(
        self, inner: Inner, stages: Stages, stage: int, sample: Sample, trained: Prediction | None
    ) -> None:
        """Take the train step of a stage."""
        recording = self._session.recorder.recording("train")
        if recording is None:
            return
        last = stage == stages.count - 1
        said = self._said(inner) if last else {}
        if stage < len(stages.objective):
            said["losses/objective"] = stages.objective[stage]
        self._take_figures(recording, said)
        if last or trained is not None:
            self._rows_of(recording, sample, trained)
        self._trees_of(recording, inner, stages, stage)
        self._importance_of(recording, stages, stage)
        if recording.due.ask("shap/values"):
            self._missing("shap", inner, "only XGBoost computes Shapley values")

    def _take_trees(self, recording: Recording, inner: Inner, stages: Stages, stage: int) -> None:
        if any(recording.due.ask(name) for name in tree_names()):
            trees = stages.trees(stage)
            if trees:
                keep_trees(recording, self._copier, trees)
            elif recording.due.ask("trees/depth"):
                self._missing("trees", inner, "there are none to be seen")

    def _take_importance(self, recording: Recording, stages: Stages, stage: int) -> None:
        """Take what the trees so far make of each feature."""
        if recording.due.ask(_IMPORTANCE):
            shares = stages.importance(stage)
            if shares is not None:
                self._keep(recording, _IMPORTANCE, shares)

    def _evaluate_stage(
        self, inner: Inner, stages: Stages, stage: int, validated: Prediction | None
    ) -> None:
        """Take the evaluation of a stage; that of the last one has what was learned in all."""
        last = stage == stages.count - 1
        recording = self._evaluation(narrow=not last)
        if recording is None:
            return
        if stage < len(stages.validation):
            score = {"metrics/validation_score": stages.validation[stage]}
            self._take_figures(recording, score)
        if last:
            self._learned_of(recording, inner)
        if self._validation is not None and (last or validated is not None):
            self._rows_of(recording, self._validation, validated)
        self._session.recorder.resume_training()

    def _evaluation(self, *, narrow: bool) -> Recording | None:
        """Return the recording of an evaluation; None where nothing is due.

        Args:
            narrow: ``every`` counts for it too, since there is one after each step.
        """
        recorder = self._session.recorder
        due = recorder.config.due(recorder.steps, "eval")
        if narrow:
            due = self._evaluations.at(due, recorder.steps)
        recording = recorder.recording("eval") if due else None
        if recording is not None:
            recording.due = due
        return recording

    def _staged(self, stages: Stages, inner: Inner, sample: Sample | None) -> Iterator[Prediction]:
        """Yield the predictions after each stage; nothing where nobody may ask for them."""
        config = self._session.recorder.config
        asked = any(config.holds(name) for name in (*FIGURES, "predictions/batch"))
        if sample is not None and stages.predict is not None and asked:
            yield from stages.predict(inner.transformed(sample.x))

    def _take_rows(
        self, recording: Recording, sample: Sample, prediction: Prediction | None
    ) -> None:
        """Take rows, their targets, and what is predicted of them.

        Args:
            recording: takes them.
            sample: the rows.
            prediction: of them; None: as the estimator is now.
        """
        due = recording.due
        if due.ask("inputs/batch"):
            self._keep(recording, "inputs/batch", dense(sample.x))
        targets = self._targets(sample)
        if targets is not None:
            self._keep(recording, "labels/batch", targets)
        asked = any(due.ask(name) for name in (*FIGURES, "predictions/batch"))
        if prediction is None and asked:
            prediction = predict(self._estimator, sample.x)
        if prediction is None:
            return
        self._keep(recording, "predictions/batch", prediction.values)
        if targets is not None:
            self._take_figures(recording, figures(prediction, targets))

    def _said(self, inner: Inner) -> dict[str, float]:
        """Return what a pipeline or search, and the estimator inside, say of the fit in numbers."""
        return learned_figures(self._estimator) | learned_figures(inner.estimator)

    def _targets(self, sample: Sample) -> NDArray[Any] | None:
        """Return the targets, of a classifier the numbers of the classes."""
        classes = getattr(self._estimator, "classes_", None)
        if sample.y is None or not isinstance(classes, np.ndarray) or sample.y.ndim > 1:
            return sample.y
        return class_numbers(sample.y, classes)

    def _take_learned(self, recording: Recording, inner: Inner) -> None:
        if any(map(recording.due.reaches, ("weights", "biases", "feature_importance"))):
            for name, values in learned_parameters(inner.estimator).items():
                self._keep(recording, name, values)

    def _take_figures(self, recording: Recording, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            if recording.due.ask(name):
                recording.add_scalar(name, value)

    def _keep(self, recording: Recording, name: str, values: NDArray[Any]) -> None:
        """Keep what is asked of an array of numbers."""
        ask = recording.due.ask(name)
        if not ask:
            return
        if values.dtype.kind in "biuf":
            self._copier.keep(recording, name, values, ask)
        else:
            self._session.shield.report(
                f"{name} is asked for, but has no numbers ({values.dtype}); watch the estimator "
                "behind what encodes them"
            )

    def _missing(self, kind: str, inner: Inner, why: str) -> None:
        name = type(inner.estimator).__name__
        self._session.shield.report(f"{name}: {kind} asked for, but {why}")


def _next(predictions: Iterator[Prediction]) -> Prediction | None:
    return next(predictions, None)
