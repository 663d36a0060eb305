"""The XGBoost callback: capture from the rounds of a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import xgboost
from xgboost.callback import TrainingCallback

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.session import Session
from vinedresser.capture.xgboost_.booster_info import training_setup
from vinedresser.capture.xgboost_.contributions import feature_names
from vinedresser.capture.xgboost_.data import named_sets
from vinedresser.capture.xgboost_.guard.guard import ObjectiveGuard, guard_of
from vinedresser.capture.xgboost_.round_recorder import EvalsLog, RoundRecorder
from vinedresser.errors import ConfigError
from vinedresser.objects.files import replacing

__all__ = ["IdleCallback", "XGBoostCallback"]


class IdleCallback(TrainingCallback):
    """A callback that does nothing; replaces an `XGBoostCallback` in other processes."""


class XGBoostCallback(TrainingCallback, Adapter):
    """Captures each round of `xgboost.train`, `xgboost.cv` or an estimator as a step.

    Metrics of the training set belong to the train step; those of the other evaluation sets form an
    evaluation at the same step. All values are those after the round. In a cross-validation each
    fold's booster is captured with the name prefix ``fold0.``, ``fold1.``, ...

    Copying returns the same object, since estimators are cloned with their callbacks. Pickling, in
    a saved estimator or for a worker process, yields an `IdleCallback`.

    Args:
        introduce: registers the adapter with the hook; called again when more is known.
        train: training data for predictions, labels and Shapley values, which XGBoost does not pass
            to callbacks: a DMatrix or (X, y).
        validation: evaluation data: a DMatrix, (X, y), or a mapping of names to several.
        training_set: name of the evaluation set that is the training data; None for any name that
            contains "train".
        loss: the metric that is the loss; None for that of the objective.
        rows: maximum number of evenly strided rows used of a data set.
        shap_rows: maximum number of these rows for Shapley values.
        suffix: end of the names of its checkpoints, which other callbacks of the hook have not.

    Raises:
        ConfigError: `train` or `validation` is not data, or a number of rows is invalid.
    """

    framework = "xgboost"

    def __init__(
        self,
        session: Session,
        introduce: Callable[[Any], None],
        *,
        train: Any = None,
        validation: Any = None,
        training_set: str | None = None,
        loss: str | None = None,
        rows: int = 10_000,
        shap_rows: int = 256,
        suffix: str = "",
    ) -> None:
        super().__init__()
        self.versions = {"xgboost": xgboost.__version__}
        for key, value in (("rows", rows), ("shap_rows", shap_rows)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{key} = {value!r}: must be an integer, at least 1")
        self._introduce = introduce
        train_sets = named_sets(train, rows, name="train")
        validation_sets = named_sets(validation, rows, name="validation")

        def make(model: Any) -> RoundRecorder:
            return RoundRecorder(
                session,
                model,
                train_sets,
                validation_sets,
                training_set=training_set,
                loss=loss,
                rows=rows,
                shap_rows=shap_rows,
            )

        self._make: Callable[[Any], RoundRecorder] | None = make
        self._session = session
        self._suffix = suffix
        self._guard: ObjectiveGuard | None = None
        self._features: list[str] = []
        # The current training; during a round, its log and the number of rounds before.
        self._rounds: RoundRecorder | None = None
        # Those of the last training, if its model is to be kept.
        self._last: dict[str, xgboost.Booster] = {}
        self._open: tuple[EvalsLog, int] | None = None
        guard = session.shield.guard
        self._on_begin = guard("the start of a training", self._begin)
        self._on_round = guard("the start of a round", self._begin_round)
        self._on_rounded = guard("the end of a round", self._end_round)
        self._on_end = guard("the end of a training", self._end)
        # The guard lets TrainingStopped through.
        self._record = guard("the end of a round", lambda rounds, log: rounds.record(log))
        self._step = guard("the end of a step", session.step_ended)
        introduce(self)

    def __deepcopy__(self, _memo: dict[int, Any]) -> XGBoostCallback:
        return self

    def __copy__(self) -> XGBoostCallback:
        return self

    def __reduce__(self) -> tuple[type[IdleCallback], tuple[()]]:
        return IdleCallback, ()

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        return [] if self._rounds is None else self._rounds.names()

    def setup(self) -> TrainingSetup:
        """See `Adapter.setup`; known after the first round."""
        rounds = self._rounds
        if rounds is None or not rounds.done:
            return TrainingSetup()
        return training_setup(next(iter(rounds.boosters.values())))

    def features(self) -> list[str]:
        """See `Adapter.features`."""
        return self._features

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`; in a cross-validation, one per fold.

        ``xgboost.Booster(model_file=path)`` loads it; ``xgboost.train(xgb_model=path)`` continues
        from it.
        """
        boosters = self._last if self._rounds is None else self._rounds.boosters
        for prefix, booster in boosters.items():
            name = f"{prefix.replace('.', '-')}step-{step}{self._suffix}.ubj"
            with replacing(directory / name) as path:
                path.write_bytes(booster.save_raw("ubj"))

    def detach(self) -> None:
        """See `Adapter.detach`."""
        self._make = None
        self._last = {}
        self._release()

    def before_training(self, model: Any) -> Any:
        """See `xgboost.callback.TrainingCallback`; returns the model unchanged."""
        self._on_begin(model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
        """See `xgboost.callback.TrainingCallback`; never stops the training."""
        self._on_round(evals_log)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
        """See `xgboost.callback.TrainingCallback`.

        Raises:
            TrainingStopped: The training was requested to stop.
        """
        self._on_rounded()
        return False

    def after_training(self, model: Any) -> Any:
        """See `xgboost.callback.TrainingCallback`; returns the model unchanged."""
        self._on_end()
        return model

    def _begin(self, model: Any) -> None:
        self._release()
        if self._make is None:
            return
        self._rounds = self._make(model)
        self._guard = guard_of(self._session, self._rounds.boosters)
        features = feature_names(next(iter(self._rounds.boosters.values())))
        if features != self._features:
            self._features = features
            self._introduce(self)

    def _begin_round(self, log: EvalsLog) -> None:
        if self._rounds is not None:
            self._open = (log, self._rounds.done)

    def _end_round(self) -> None:
        if self._rounds is None or self._open is None:
            return
        log, _ = self._open
        self._open = None
        # The step is counted even if the recording fails.
        self._record(self._rounds, log)
        self._step()

    def _end(self) -> None:
        """Record a last round whose end was not reported because another callback stopped it."""
        rounds, pending = self._rounds, self._open
        if rounds is not None and pending is not None and rounds.done > pending[1]:
            self._end_round()
        if rounds is not None and self._session.keeps_model:
            self._last = rounds.boosters
        self._release()
        if self._session.detected:
            # Each detected training has its own callback, which would keep its data in memory.
            self._make = None

    def _release(self) -> None:
        """Release what belongs to the current training."""
        if self._guard is not None:
            self._guard.remove()
        self._guard = self._rounds = self._open = None
