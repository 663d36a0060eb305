"""A small healthy case."""

from __future__ import annotations

from typing import Any

from benchmarks.faults.cases import Case, case_of

__all__ = ["IRIS", "iris"]

IRIS: dict[str, Any] = {
    "id": "iris",
    "kind": "healthy",
    "fault_class": "healthy",
    "data": {"name": "iris"},
    "model": [{"dense": 8, "act": "relu"}, {"dropout": 0.1}, {"dense": 3}],
    "init": "torch",
    "loss": "ce_logits",
    "optimizer": {"name": "adam", "lr": 0.02},
    "batch": 32,
    "steps": 120,
    "expect": {"all": [["acc", ">=", 0.9], ["nan", "==", False]]},
}


def iris(**changes: Any) -> Case:
    return case_of({**IRIS, **changes})
