"""The two search spaces: one in which most configurations are broken, one in which none is."""

from __future__ import annotations

from typing import Any

__all__ = ["EPOCHS", "SPACES"]

EPOCHS = 27

SPACES: dict[str, dict[str, Any]] = {
    # A wide space, for a problem without prior knowledge.
    "wide": {
        "lr": {"log": [3e-5, 16.0]},
        "init": {"log": [0.03, 10.0]},
        "depth": {"int": [1, 5]},
        "activation": ["relu", "sigmoid", "tanh"],
    },
    # A narrow space, to tune a working configuration.
    "healthy": {
        "lr": {"log": [0.01, 0.2]},
        "init": {"log": [0.7, 1.4]},
        "depth": {"int": [1, 3]},
        "activation": ["relu", "tanh"],
    },
}
