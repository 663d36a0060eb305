"""No rule about data fails for any inputs, labels and predictions."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.property_tests import examples
from vinedresser.rules.base import Rule
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.data.single_label import SingleLabel
from vinedresser.rules.data.token_ratio import TokenRatio
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.data.unnormalised_targets import UnnormalisedTargets
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

LOSSES = ("CrossEntropyLoss", "BCEWithLogitsLoss", "MSELoss", "own")
SHAPES = ((), (4,), (40,), (40, 1), (40, 3), (40, 2, 3), (40, 0), (0, 3), (1, 5), (7, 3))
SPECIAL = (0.0, 1.0, -1.0, 1e300, -1e300, float("nan"), float("inf"), 5e-324)


def rules() -> list[Rule]:
    """Return the rules with little patience."""
    return [
        UnnormalisedInputs(patience=1),
        UnnormalisedTargets(patience=1),
        CorruptInputs(),
        SingleLabel(rows=1),
        CorruptLabels(evaluations=1),
        ClassImbalance(samples=1),
        DataLeakage(),
        TokenRatio(),
        LossOutputMismatch(patience=1),
    ]


def array(draw: st.DrawFn, generator: np.random.Generator) -> NDArray[np.generic]:
    """Return an array of any dtype and shape."""
    shape = draw(st.sampled_from(SHAPES))
    kind = draw(st.sampled_from(("normal", "classes", "one", "special", "bool", "large")))
    if kind == "normal":
        return generator.normal(size=shape).astype(np.float32)
    if kind == "classes":
        return generator.integers(0, 4, shape)
    if kind == "one":
        return np.full(shape, 3.0)
    if kind == "bool":
        return np.asarray(generator.integers(0, 2, shape), bool)
    if kind == "large":
        return np.asarray(generator.normal(size=shape) * 1e200)
    return np.asarray(generator.choice(SPECIAL, shape))


@st.composite
def records(draw: st.DrawFn) -> list[StepRecord]:
    """Return a training with evaluations."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    loss = draw(st.sampled_from(LOSSES))
    shown = [[array(draw, generator) for _ in range(3)] for _ in range(draw(st.integers(1, 3)))]
    values = draw(st.lists(st.sampled_from([0.5, 1.0, 2.3, *SPECIAL]), min_size=1, max_size=4))
    made = []
    for number in range(draw(st.integers(0, 80))):
        labels, predictions, inputs = shown[number % len(shown)]
        tensors = {
            f"labels/{loss}": labels,
            f"predictions/{loss}": predictions,
            "inputs/model": inputs,
        }
        scalars = {f"losses/{loss}": values[number % len(values)]}
        if number % 4 == 0:
            made.append(step_record(5 * number, mode="eval", scalars=scalars, tensors=tensors))
        made.append(step_record(5 * number, scalars=scalars, tensors=tensors))
    return made


@pytest.mark.thorough
@given(records())
@settings(examples(60), suppress_health_check=list(HealthCheck))
def test_no_rule_fails_for_any_data(made: list[StepRecord]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = judge(make_run(Path(directory) / "run", made), rules())
    assert [one.seen for one in found if one.seen.startswith("the rule itself failed")] == []
    json.dumps([one.to_json() for one in found], allow_nan=False)
