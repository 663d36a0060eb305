"""What MLflow gets of a run: dynamics, at most 30 keys, the last step, findings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.explain.reports.pages import finding
from vinedresser.infra.services.tracking.preparation import prepare_tracking
from vinedresser.infra.services.tracking.runs import create_run
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import SystemRecord, TrackingRecord
from vinedresser.tasks.lifecycle.metric_points import MetricPoints, rule_points
from vinedresser.tasks.lifecycle.mlflow_metrics import send_metrics
from vinedresser.testing.runs import make_run, step_record


def points_of(run: Run) -> dict[str, list[float]]:
    """Return the values sent of a run by key."""
    found: dict[str, list[float]] = {}
    points = MetricPoints(lambda key, value, *, step, time: found.setdefault(key, []).append(value))
    for step in run.follow():
        points.add(step)
    points.close()
    return found


def test_dynamics_are_computed_from_what_was_captured(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    gradients, weights, updates = draw.uniform(0.1, 1, size=(3, 5))
    norms = {
        f"{kind}/layer{place}.weight": {"l2": float(size)}
        for kind, sizes in (("gradients", gradients), ("weights", weights), ("updates", updates))
        for place, size in enumerate(sizes)
    }
    norms["weights/layer0.weight"]["l2"] = 0.0
    scalars = {"losses/MSELoss": 1.0, "optimizer_state/lr": 0.3, "timing/step": 0.25}
    found = points_of(
        make_run(tmp_path / "run", [step_record(0, scalars=scalars, reductions=norms)])
    )
    assert found.pop("training/gradient_norm") == [pytest.approx(np.linalg.norm(gradients))]
    ratios = np.sort(updates[1:] / weights[1:])
    assert found.pop("training/update_ratio") == [pytest.approx(ratios[1:3].mean())]
    assert found == {
        "train/loss": [1.0],
        "training/learning_rate": [0.3],
        "training/step_seconds": [0.25],
    }


def test_a_computed_accuracy_is_called_so_unless_the_script_reports_one(tmp_path: Path) -> None:
    computed = {"saved/accuracy/CrossEntropyLoss": 0.5}
    assert points_of(make_run(tmp_path / "a", [step_record(0, mode="eval", scalars=computed)])) == {
        "eval/accuracy": [0.5]
    }
    both = computed | {"metrics/accuracy": 0.25}
    found = points_of(make_run(tmp_path / "b", [step_record(0, mode="eval", scalars=both)]))
    assert found["eval/accuracy"] == [0.25]


def test_there_are_at_most_thirty_keys(tmp_path: Path) -> None:
    scalars = {f"metrics/m{number}": 1.0 for number in range(40)}
    scalars |= {"optimizer_state/lr": 0.1, "timing/step": 0.1}
    norms = {f"{kind}/w": {"l2": 1.0} for kind in ("gradients", "weights", "updates")}
    found = points_of(
        make_run(tmp_path / "run", [step_record(0, scalars=scalars, reductions=norms)])
    )
    findings = [finding(rule=f"rule{number}", severity="info", step=number) for number in range(20)]
    findings.append(finding(rule="last", severity="stop", step=99))
    findings.append(finding(rule="last", severity="stop", step=120))
    rules = rule_points(findings)
    assert len(found) + len(rules) == 30
    assert rules["rule/last"] == [(99, 1.0), (120, 1.0)]
    assert list(rules)[1:] == [f"rule/rule{number}" for number in range(5)]


@pytest.mark.thorough
def test_the_last_step_and_the_load_are_sent_and_a_divergence_is_noted(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    experiment = prepare_tracking(uri, "digits")
    run_id = create_run(uri, experiment, "run", {}, {})
    losses = dict.fromkeys(range(1004), 2.0) | {1003: 1e31}
    records = [step_record(s, scalars={"losses/loss": loss}) for s, loss in losses.items()]
    make_run(tmp_path / "run", records)
    load = [SystemRecord(1e9 + at, 10 * at, {"cpu_utilization_percentage": at}) for at in range(3)]
    lines = "".join(f"{json.dumps(one.to_json())}\n" for one in load)
    (tmp_path / "run" / SystemRecord.KEY).write_text(lines, encoding="utf-8")
    send_metrics(tmp_path / "run", TrackingRecord(uri, experiment, run_id))
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    history = client.get_metric_history(run_id, "train/loss")
    assert sorted(point.step for point in history) == [*range(1001), 1003]
    assert max(point.value for point in history) == 20.0
    history = client.get_metric_history(run_id, "system/cpu_utilization_percentage")
    assert sorted((point.step, point.value) for point in history) == [(0, 0), (10, 1), (20, 2)]
    assert client.get_run(run_id).data.tags["bounded.train/loss"].startswith("1e+31 at step 1003")


def test_infinities_are_not_sent_but_noted(tmp_path: Path) -> None:
    # MLflow's databases would store -inf as -1.8e308.
    values = [1.0, float("-inf"), float("inf"), float("nan"), 2.0]
    records = [
        step_record(step, scalars={"metrics/score": value}) for step, value in enumerate(values)
    ]
    found: list[float] = []
    points = MetricPoints(lambda key, value, *, step, time: found.append(value))
    for step in make_run(tmp_path / "run", records).follow():
        points.add(step)
    points.close()
    np.testing.assert_array_equal(found, [1.0, np.nan, 2.0])
    assert points.bounded == {"infinite.train/score": "-inf at step 1, and 1 more; not sent"}
