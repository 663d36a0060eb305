"""Coefficients of a linear booster."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

__all__ = ["coefficients"]


def coefficients(booster: Booster) -> dict[str, NDArray[np.float32]]:
    """Return "weights" [F] and "biases" [1], float32; [F, K] and [K] for K outputs."""
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    features = booster.num_features()
    values = np.array(model["weights"], np.float32).reshape(features + 1, -1)
    weights = values[:-1, 0] if values.shape[1] == 1 else values[:-1]
    return {"weights": weights, "biases": values[-1]}
