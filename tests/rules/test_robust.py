"""Whatever numbers a training brings forth, no rule fails on them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES, rules_from_table
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

# Short patience, so that few steps are many.
TABLE: dict[str, dict[str, int]] = {
    "nonfinite": {"every": 1},
    "unnormalised_inputs": {"patience": 1},
    "unnormalised_targets": {"patience": 1},
    "corrupt_inputs": {},
    "single_label": {"rows": 8},
    "corrupt_labels": {"evaluations": 1},
    "class_imbalance": {"samples": 1},
    "data_leakage": {},
    "token_ratio": {},
    "perfect_at_once": {},
    "loss_output_mismatch": {"patience": 1},
    "class_numbers": {},
    "initial_loss": {"patience": 1},
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
    "update_ratio": {"every": 1, "patience": 1},
    "stale_batch_norm": {"every": 1, "patience": 1},
    "exploding_gradient": {"every": 1, "patience": 1},
    "vanishing_gradient": {"every": 1, "patience": 1},
    "dying_relu": {"every": 1, "patience": 1},
    "saturated_activation": {"every": 1, "patience": 1},
    "all_zero": {"every": 1, "patience": 1},
    "low_variance": {"every": 1, "patience": 1},
    "unchanged_tensor": {"every": 1, "patience": 1},
    "oscillating_loss": {"patience": 1},
    "constant_predictions": {"patience": 1},
    "loss_not_decreasing": {"patience": 20},
    "underfitting": {"patience": 1},
    "overfitting": {"patience": 2},
    "overtraining": {"patience": 2},
    "classifier_confusion": {},
    "similar_across_runs": {"every": 1},
    "replica_divergence": {"every": 1, "patience": 2},
    "slow_input": {"patience": 1},
    "step_outlier": {"patience": 1},
    "stalled_training": {},
    "tree_depth": {"every": 1, "patience": 1},
    "empty_trees": {"every": 1, "patience": 1},
    "feature_dominance": {"patience": 1},
    "unused_features": {},
}
ANY = st.floats(width=64) | st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 5e-324])
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 1e308])


@st.composite
def records(draw: st.DrawFn) -> list[StepRecord]:
    """Return a training of a few dozen steps with any losses, metrics and statistics."""
    numbers = draw(st.sampled_from([ANY, FINITE]))
    length = draw(st.integers(0, 60))
    values = draw(st.lists(numbers, min_size=1, max_size=8))
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


@given(records())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_rule_fails_whatever_the_numbers(made: list[StepRecord]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = make_run(Path(directory) / "run", made, parameters={"lr": "1e-3"})
        found = judge(run, rules_from_table(TABLE))
    assert [one for one in found if one.seen.startswith("the rule itself failed")] == []
    json.dumps([one.to_json() for one in found], allow_nan=False)


def test_the_short_table_names_every_rule() -> None:
    assert set(TABLE) == set(RULES)
