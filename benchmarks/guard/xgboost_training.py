"""Trainings of XGBoost with a custom objective for the benchmark of the guard."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from vinedresser.capture import Hook, SaveConfig

__all__ = ["XGBoostTraining"]

_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}
_SETTINGS = {"max_depth": 6, "nthread": 1, "base_score": 0.5, "disable_default_eval_metric": True}
_ROWS, _FEATURES = 20_000, 30


class XGBoostTraining:
    """A training of one arm: a block of steps is a training with as many rounds.

    Args:
        arm: see `benchmarks.guard`.
        folder: folder of the run whose gradients are not finite; those of the blocks are beside it.
    """

    def __init__(self, arm: str, folder: Path) -> None:
        generator = np.random.default_rng(0)
        features = generator.normal(size=(_ROWS, _FEATURES))
        labels = (features[:, :3].sum(1) > 0).astype(np.float32)
        self._data = xgboost.DMatrix(features, labels, nthread=1)
        self._arm, self._folder = arm, folder
        # The run of each block is closed with it.
        self.hook: Hook | None = None

    def block(self, steps: int) -> float:
        """Train for some rounds; return the CPU seconds of this thread for each."""
        place = self._folder.with_name(f"{self._folder.name}-block")
        try:
            return self._train(steps, place, 1.0) / steps
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def break_(self) -> None:
        """Train for a round whose gradients are not finite."""
        self._train(1, self._folder, float("nan"))

    def _train(self, rounds: int, place: Path, scale: float) -> float:
        """Train with a new hook; return the CPU seconds without its creation and its end."""

        def logistic(raw: Any, data: xgboost.DMatrix) -> tuple[Any, Any]:
            probability = 1 / (1 + np.exp(-raw))
            return (probability - data.get_label()) * scale, probability * (1 - probability)

        hook = None
        if not self._arm.startswith("plain"):
            guard = "nonfinite" if self._arm == "guard" else "off"
            hook = Hook(place, collections=_NEVER, guard=guard)
        callbacks = [] if hook is None else [hook.xgboost()]
        began = time.thread_time()
        xgboost.train(_SETTINGS, self._data, rounds, obj=logistic, callbacks=callbacks)
        taken = time.thread_time() - began
        if hook is not None:
            hook.close()
        return taken
