"""Features that are all one number are found beside the edges of a graph that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.judge import judge
from vinedresser.testing.runs import make_run, step_record


def found(path: Path, features: float | None, *, good: bool = False, mask: bool = False) -> bool:
    """Return whether a run is reported.

    Args:
        path: directory of the run.
        features: value of all features of the nodes; None: they differ.
        good: whether the labels are predicted all the same.
        mask: whether the numbers have the shape of the integers, as a mask of tokens has.
    """
    rng, records = np.random.default_rng(0), []
    for step in range(0, 400, 5):
        width = 40 if mask else 8
        numbers = (
            rng.normal(size=(32, width)) if features is None else np.full((32, width), features)
        )
        labels = rng.integers(4, size=32)
        scores = rng.normal(size=(32, 4)) + 9 * good * np.eye(4)[labels]
        tensors: dict[str, Any] = {
            "model_inputs/M[0]": numbers.astype(np.float32),
            "model_inputs/M[1]": rng.integers(2, size=(32, 40)),
            "labels/CrossEntropyLoss": labels,
            "predictions/CrossEntropyLoss": scores,
        }
        records.append(step_record(step, scalars={"losses/CrossEntropyLoss": 1.4}, tensors=tensors))
    run = make_run(path, records, total_steps=400)
    return any("only masks or indices differ" in one.seen for one in judge(run, [CorruptInputs()]))


def test_features_of_nodes_that_are_all_one_number(tmp_path: Path) -> None:
    assert found(tmp_path / "run", 1.0)


@pytest.mark.parametrize(
    ("features", "good", "mask"), [(None, False, False), (1.0, True, False), (1.0, False, True)]
)
def test_others_are_ignored(features: float | None, good: bool, mask: bool, tmp_path: Path) -> None:
    assert not found(tmp_path / "run", features, good=good, mask=mask)
