"""No rule fails, whatever numbers a training produces."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property_tests import examples
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES, rules_from_table
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

# Short patience, so that rules judge after few steps.
TABLE: dict[str, dict[str, Any]] = {
    "nonfinite": {"every": 1},
    "unnormalised_inputs": {"patience": 1},
    "unnormalised_targets": {"patience": 1},
    "corrupt_inputs": {},
    "single_label": {"rows": 8},
    "corrupt_labels": {"evaluations": 1},
    "class_imbalance": {"samples": 1},
    "data_leakage": {},
    "target_leakage": {"rows": 16},
    "token_ratio": {},
    "loss_output_mismatch": {"patience": 1},
    "missing_activation": {"patience": 1},
    "unbounded_loss": {"fall": 11},
    "idle_term": {},
    "initial_loss": {"factor": 1.5},
    "bad_initialisation": {"every": 1},
    "identical_units": {"every": 1, "patience": 1},
    "gradients_not_cleared": {"every": 1, "patience": 1},
    "untrained_parameters": {"every": 1, "patience": 1},
    "wrong_mode": {"every": 1, "patience": 1},
    "over_regularisation": {"every": 1, "patience": 1},
    "mixed_precision": {"every": 1, "patience": 1},
    "scheduler_not_stepped": {"patience": 1},
    "learning_rate_too_high": {"patience": 1},
    "learning_rate_too_low": {"patience": 1},
    "stale_batch_norm": {"every": 1, "patience": 1},
    "vanishing_gradient": {"every": 1, "patience": 1},
    "dying_relu": {"every": 1, "patience": 1},
    "saturated_activation": {"every": 1, "patience": 1},
    "no_signal": {"every": 1, "patience": 1},
    "loss_not_decreasing": {"patience": 20},
    "underfitting": {"patience": 1},
    "overfitting": {"patience": 2, "plateau": 2},
    "classifier_confusion": {},
    "replica_divergence": {"every": 1, "patience": 2},
    "gradient_reduction": {"every": 1, "patience": 1},
    "rank_data": {"every": 1, "patience": 1},
    "unsynchronised_statistics": {"every": 1, "patience": 1},
    "rank_outlier": {"patience": 1, "every": 1},
    "slow_rank": {"patience": 1},
    "slow_input": {"patience": 1},
    "step_outlier": {"patience": 1},
    "stalled_training": {},
    "equal_workers": {},
    "nothing_restored": {},
    "optimizer_made_anew": {},
    "tree_depth": {"every": 1, "patience": 1},
    "empty_trees": {"every": 1, "patience": 1},
    "shrinkage_too_low": {"rounds": 3},
    "shrinkage_too_high": {"rounds": 2},
    "memorised_labels": {"rounds": 2},
    "feature_dominance": {"patience": 1},
    "expectation": {
        "lines": [
            *("loss < 1", "a falls", "accuracy > 0.5 by step 20", "1.weight frozen"),
            *("norm(gradients) / max(weights) < 3", "mean(inputs) > 0 from epoch 2"),
        ]
    },
    "reference": {
        "good": {
            "runs": ["a", "b", "c"],
            "settings": {},
            "levels": {
                name: {str(window): [1.0, 2.0, 3.0 - 3.0 * (name == "a")] for window in range(9)}
                for name in ("train/loss", "eval/accuracy", "gradient norm", "update ratio", "a")
            },
        }
    },
}
ANY = st.floats(width=64) | st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 5e-324])
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 1e308])
VALUES = st.lists(ANY, min_size=1, max_size=8) | st.lists(FINITE, min_size=1, max_size=8)


def records(length: int, values: list[float]) -> list[StepRecord]:
    """Return the records of a training whose losses, metrics and statistics are these values.

    Args:
        length: number of train steps.
        values: values by turns.
    """
    made = []
    for step in range(length):
        value = values[step % len(values)]
        other = values[(step * 7 + 3) % len(values)]
        scalars = {"losses/a": value, "metrics/accuracy": other, "state/training": abs(other)}
        scalars |= {"state/grad_scale": value, "state/skipped_steps": other}
        statistics = {
            "abs_mean": abs(other),
            "l2": abs(value),
            "std": abs(other),
            "mean": value,
            "zero_share": other,
            "unit_similarity": value,
            "nonfinite": 0.0,
        }
        names = [
            f"{kind}/{n}.weight" for kind in ("gradients", "weights", "updates") for n in "123"
        ]
        names += ["buffers/1.running_mean", "outputs/1.tanh()", "outputs/2.sigmoid()"]
        reductions = dict.fromkeys([*names, "outputs/3.relu()", "inputs/batch"], statistics)
        if step % 3 == 0:
            made.append(step_record(step, mode="eval", scalars=scalars))
        made.append(step_record(step, scalars=scalars, reductions=reductions))
    return made


def failures(length: int, values: list[float]) -> list[str]:
    """Judge such a training; return which rules failed, and how."""
    with tempfile.TemporaryDirectory() as directory:
        made = records(length, values)
        run = make_run(Path(directory) / "run", made, parameters={"lr": "1e-3"})
        found = judge(run, rules_from_table(TABLE))
    failed = [f"{one.rule}: {one.seen}" for one in found if "the rule itself failed" in one.seen]
    for one in found:
        try:
            json.dumps(one.to_json(), allow_nan=False)
        except ValueError as error:
            failed.append(f"{one.rule}: {error}")
    return failed


# The arguments are plain numbers, so that a report of a failure shows the smallest of them.
@pytest.mark.thorough
@given(st.integers(0, 60), VALUES)
@examples(60)
def test_no_rule_fails_whatever_the_numbers(length: int, values: list[float]) -> None:
    assert failures(length, values) == []


@pytest.mark.thorough
def test_a_counter_that_falls_as_fast_as_the_steps_rise() -> None:
    """`mixed_precision` once divided by zero here."""
    assert failures(52, [0.0, 1.0]) == []


def test_the_short_table_names_every_rule() -> None:
    assert set(TABLE) == set(RULES)
