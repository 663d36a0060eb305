"""Learned parameters of fitted estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.sklearn_.sample import dense

__all__ = ["learned_scalars", "learned_parameters"]

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


def learned_parameters(estimator: Any) -> dict[str, NDArray[Any]]:
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


def learned_scalars(estimator: Any) -> dict[str, float]:
    """Return the scalars with which a fitted estimator describes its fit, by full name."""
    found: dict[str, float] = {}
    for attribute, name in _SCALARS.items():
        value = getattr(estimator, attribute, None)
        if value is not None and np.ndim(value) == 0 and np.isreal(value):
            found[name] = float(value)
    return found
