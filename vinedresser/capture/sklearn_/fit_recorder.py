"""Recording of fitted estimators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.adapters.tree_table import keep_trees, tree_names
from vinedresser.capture.recording.evaluations import Evaluations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.capture.sklearn_.inner_estimator import InnerEstimator, inner_estimator
from vinedresser.capture.sklearn_.prediction import (
    SCORES,
    Prediction,
    class_numbers,
    predict,
    scores,
)
from vinedresser.capture.sklearn_.sample import Sample, dense
from vinedresser.capture.sklearn_.stages import Stages, stages_of

_IMPORTANCE = "feature_importance/impurity"
# Tensor name by attribute.
_ARRAYS = {
    "coef_": "weights/coef",
    "intercept_": "biases/intercept",
    "dual_coef_": "weights/dual_coef",
    "feature_log_prob_": "weights/feature_log_prob",
    "class_log_prior_": "biases/class_log_prior",
    "theta_": "weights/theta",
    "var_": "weights/var",
    "components_": "weights/components",
    "mean_": "biases/mean",
    "scale_": "weights/scale",
    "cluster_centers_": "weights/cluster_centers",
    "means_": "weights/means",
    "feature_importances_": "feature_importance/impurity",
}
# Attributes of neural networks, lists with one array per layer.
_LAYERS = {"coefs_": "weights/layers", "intercepts_": "biases/layers"}
# Scalar name by attribute.
_SCALARS = {
    "loss_": "losses/objective",
    "inertia_": "losses/inertia",
    "n_iter_": "metrics/n_iter",
    "lower_bound_": "metrics/lower_bound",
    "oob_score_": "metrics/oob_score",
    "best_score_": "metrics/best_score",
}


class FitRecorder:
    """Records what is due of an estimator after each fit.

    Args:
        validation: rows to evaluate on; None for no evaluation.
        rows: maximum number of rows used of a batch or data set.
    """

    def __init__(
        self, session: Session, estimator: Any, validation: Sample | None, rows: int
    ) -> None:
        self._session = session
        self._estimator = estimator
        self._validation = validation
        self._rows = rows
        self._copier = session.copier(ArrayCopier)
        self._evaluations = Evaluations(session.recorder)
        # An error in one part must not affect the others.
        guard = session.shield.guard
        self._rows_guarded = guard("recording predictions", self._record_rows)
        self._learned_guarded = guard("recording learned parameters", self._record_learned)
        self._trees_guarded = guard("recording trees", self._record_trees)
        self._importance_guarded = guard("recording feature importance", self._record_importance)
        self._next = guard("predicting by stage", _next)
        # Number of stages of the previous fit, from which a warm start continues.
        self._stages_before = 0

    def record_batch(self, x: Any, y: Any) -> None:
        """Record a call of partial_fit; the caller ends the train step."""
        inner = inner_estimator(self._estimator)
        recording = self._session.recorder.recording("train")
        if recording is not None:
            sample = Sample.of(x, y, self._rows)
            self._rows_guarded(recording, sample, None)
            self._record_scalars(recording, self._learned_scalars(inner))
            self._learned_guarded(recording, inner)
        if self._validation is not None:
            evaluation = self._evaluations.recording()
            if evaluation is not None:
                self._rows_guarded(evaluation, self._validation, None)
                self._session.recorder.resume_training()

    def record_fit(self, x: Any, y: Any) -> None:
        """Record a fit stage by stage; the caller ends the train step of the last stage."""
        inner = inner_estimator(self._estimator)
        stages = stages_of(inner.estimator) or Stages(1)
        first = self._stages_before if getattr(inner.estimator, "warm_start", False) else 0
        self._stages_before = stages.count
        # A fit without a new stage is a step, too.
        first = min(first, stages.count - 1)
        sample = Sample.of(x, y, self._rows)
        trained = self._staged(stages, inner, sample)
        validated = self._staged(stages, inner, self._validation)
        for stage in range(stages.count):
            predictions = self._next(trained), self._next(validated)
            if stages.count > 1 and self._session.recorder.timing is not None:
                self._session.recorder.timing.forget()
            if stage >= first:
                if stage > first:
                    self._session.recorder.end_train_step()
                self._record_stage(inner, stages, stage, sample, predictions[0])
                self._evaluate_stage(inner, stages, stage, predictions[1])

    def _record_stage(
        self,
        inner: InnerEstimator,
        stages: Stages,
        stage: int,
        sample: Sample,
        trained: Prediction | None,
    ) -> None:
        recording = self._session.recorder.recording("train")
        if recording is None:
            return
        last = stage == stages.count - 1
        scalars = self._learned_scalars(inner) if last else {}
        if stage < len(stages.objective):
            scalars["losses/objective"] = stages.objective[stage]
        self._record_scalars(recording, scalars)
        if last or trained is not None:
            self._rows_guarded(recording, sample, trained)
        self._trees_guarded(recording, inner, stages, stage)
        self._importance_guarded(recording, stages, stage)
        if recording.due.ask("shap/values"):
            self._report_missing("shap", inner, "only XGBoost computes Shapley values")

    def _record_trees(
        self, recording: Recording, inner: InnerEstimator, stages: Stages, stage: int
    ) -> None:
        if any(recording.due.ask(name) for name in tree_names()):
            trees = stages.trees(stage)
            if trees:
                keep_trees(recording, self._copier, trees)
            elif recording.due.ask("trees/depth"):
                self._report_missing("trees", inner, "it has no accessible trees")

    def _record_importance(self, recording: Recording, stages: Stages, stage: int) -> None:
        """Record the feature importance of the trees up to a stage."""
        if recording.due.ask(_IMPORTANCE):
            shares = stages.importance(stage)
            if shares is not None:
                self._keep(recording, _IMPORTANCE, shares)

    def _evaluate_stage(
        self, inner: InnerEstimator, stages: Stages, stage: int, validated: Prediction | None
    ) -> None:
        """Record the evaluation of a stage; the last one includes the learned parameters."""
        last = stage == stages.count - 1
        recording = self._evaluations.recording(frequent=not last)
        if recording is None:
            return
        if stage < len(stages.validation):
            score = {"metrics/validation_score": stages.validation[stage]}
            self._record_scalars(recording, score)
        if last:
            self._learned_guarded(recording, inner)
        if self._validation is not None and (last or validated is not None):
            self._rows_guarded(recording, self._validation, validated)
        self._session.recorder.resume_training()

    def _staged(
        self, stages: Stages, inner: InnerEstimator, sample: Sample | None
    ) -> Iterator[Prediction]:
        """Yield the prediction after each stage; nothing if it can never be due."""
        config = self._session.recorder.config
        wanted = any(config.holds(name) for name in (*SCORES, "predictions/batch"))
        if sample is not None and stages.predict is not None and wanted:
            yield from stages.predict(inner.transformed(sample.x))

    def _record_rows(
        self, recording: Recording, sample: Sample, prediction: Prediction | None
    ) -> None:
        """Record rows with their targets and predictions.

        Args:
            prediction: their prediction; None to predict with the current estimator.
        """
        due = recording.due
        if due.ask("inputs/batch"):
            self._keep(recording, "inputs/batch", dense(sample.x))
        targets = self._targets(sample)
        if targets is not None:
            self._keep(recording, "labels/batch", targets)
        wanted = any(due.ask(name) for name in (*SCORES, "predictions/batch"))
        if prediction is None and wanted:
            prediction = predict(self._estimator, sample.x)
        if prediction is None:
            return
        self._keep(recording, "predictions/batch", prediction.values)
        if targets is not None:
            self._record_scalars(recording, scores(prediction, targets))

    def _learned_scalars(self, inner: InnerEstimator) -> dict[str, float]:
        """Return the scalars of a pipeline or search and of the estimator inside."""
        return _learned_scalars(self._estimator) | _learned_scalars(inner.estimator)

    def _targets(self, sample: Sample) -> NDArray[Any] | None:
        """Return the targets; class numbers for a classifier."""
        classes = getattr(self._estimator, "classes_", None)
        if sample.y is None or not isinstance(classes, np.ndarray) or sample.y.ndim > 1:
            return sample.y
        return class_numbers(sample.y, classes)

    def _record_learned(self, recording: Recording, inner: InnerEstimator) -> None:
        if any(map(recording.due.reaches, ("weights", "biases", "feature_importance"))):
            for name, values in _learned_parameters(inner.estimator).items():
                self._keep(recording, name, values)

    def _record_scalars(self, recording: Recording, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            if recording.due.ask(name):
                recording.add_scalar(name, value)

    def _keep(self, recording: Recording, name: str, values: NDArray[Any]) -> None:
        """Record an array if it is due."""
        ask = recording.due.ask(name)
        if not ask:
            return
        if values.dtype.kind in "biuf":
            self._copier.keep(recording, name, values, ask)
        else:
            self._session.shield.report(
                f"{name} not captured: not numeric ({values.dtype}); watch the estimator after the "
                "encoder"
            )

    def _report_missing(self, kind: str, inner: InnerEstimator, why: str) -> None:
        name = type(inner.estimator).__name__
        self._session.shield.report(f"{name}: {kind} not captured: {why}")


def _next(predictions: Iterator[Prediction]) -> Prediction | None:
    return next(predictions, None)


def _learned_parameters(estimator: Any) -> dict[str, NDArray[Any]]:
    """Return the learned arrays of an estimator by full name.

    Args:
        estimator: a fitted estimator; attributes it does not have are skipped.
    """
    found: dict[str, NDArray[Any]] = {}
    for attribute, name in _ARRAYS.items():
        # Some are properties that raise AttributeError, such as coef_ of a kernel machine.
        value = getattr(estimator, attribute, None)
        array = None if value is None else dense(value)
        if array is not None and array.dtype.kind in "biuf":
            found[name] = np.atleast_1d(array)
    for attribute, name in _LAYERS.items():
        for layer, value in enumerate(getattr(estimator, attribute, ())):
            found[f"{name}.{layer}"] = np.asarray(value)
    return found


def _learned_scalars(estimator: Any) -> dict[str, float]:
    """Return the scalars with which a fitted estimator describes its fit, by full name."""
    found: dict[str, float] = {}
    for attribute, name in _SCALARS.items():
        value = getattr(estimator, attribute, None)
        if value is not None and np.ndim(value) == 0 and np.isreal(value):
            found[name] = float(value)
    return found
