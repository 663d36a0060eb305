"""The guard sees values of custom objectives that are not finite, before trees are grown."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from xgboost.callback import CallbackContainer

from tests.capture.attach.runs import attached, script
from tests.capture.xgboost_.objectives import (
    BAD_ROW,
    ROUNDS,
    GammaTree,
    Squared,
    gamma,
    in_place,
    infinite,
    poisson,
    rows,
    squared_error,
    train,
)
from vinedresser.capture import Hook, open_run
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.objects import LocalStorage
from vinedresser.replay.xgboost_.stepping import replay
from vinedresser.snapshots.arrays import ArrayCodec
from vinedresser.snapshots.reading import list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

_UPDATE, _BOOST = xgboost.Booster.update, xgboost.Booster.boost


def taken(run: Path) -> list[int]:
    """Return the steps of the snapshots."""
    faults: list[str] = []
    found = [snapshot.step for snapshot in list_snapshots(LocalStorage(run), faults)]
    assert faults == []
    return found


def contents(run: Path, step: int) -> dict[str, Any]:
    """Return the booster and the round of a snapshot."""
    snapshot = open_snapshot(run / "snapshots" / f"step-{step}")
    assert snapshot.record.left_out == {}
    assert snapshot.record.framework == "xgboost"
    found: dict[str, Any] = snapshot.value(snapshot.record.contents["models"], ArrayCodec())[""]
    return found


class Later:
    """Squares whose Hessian is NaN in some rows of one round."""

    def __init__(self, bad: int, *which: int) -> None:
        self._bad = bad
        self._which = list(which)
        self.round = 0
        self.seen: list[Any] = []

    def __call__(self, margin: Any, data: xgboost.DMatrix) -> Any:
        """Return gradient and Hessian."""
        gradient, hessian = squared_error(margin, data)
        if self.round == self._bad:
            hessian[self._which] = np.nan
        self.round += 1
        self.seen.append((margin.copy(), gradient.copy(), hessian.copy()))
        return gradient, hessian


def test_the_snapshot_holds_the_booster_before_the_bad_round(tmp_path: Path) -> None:
    objective, bad = Later(5, BAD_ROW, 40), 5
    train(tmp_path / "run", objective)
    assert taken(tmp_path / "run") == [bad]
    found = contents(tmp_path / "run", bad)
    assert found["round"] == bad
    assert found["objective"] == {"name": "Later", "call": "native"}
    margin, gradient, hessian = objective.seen[bad]
    np.testing.assert_array_equal(found["predictions"], margin)
    np.testing.assert_array_equal(found["gradient"], gradient)
    np.testing.assert_array_equal(found["hessian"], hessian)
    assert found["bad_rows"].tolist() == [BAD_ROW, 40]
    np.testing.assert_array_equal(found["data"]["label"], rows().get_label())
    before = xgboost.Booster(model_file=bytearray(found["booster"].tobytes()))
    assert before.num_boosted_rounds() == bad
    np.testing.assert_array_equal(before.predict(rows(), output_margin=True), margin)
    (finding,) = open_run(tmp_path / "run").findings()
    assert (finding.rule, finding.severity, finding.step) == ("nonfinite_gradient", "warning", bad)
    assert re.search(r"\bLater\b.* not finite in round 5\b", finding.seen)
    assert f"hessian of 2 of 442 rows ({BAD_ROW}, 40)" in finding.seen
    assert "NaN" in finding.cause


def test_a_stop_comes_before_the_round(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(tmp_path / "run", Later(5, BAD_ROW), snapshots=SnapshotSettings(stop=True))
    run = open_run(tmp_path / "run")
    assert run.status.state == "stopped"
    assert "the objective Later" in run.status.reason
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert xgboost.Booster(model_file=checkpoint).num_boosted_rounds() == 5
    assert xgboost.Booster.update is _UPDATE


@pytest.mark.parametrize(
    ("objective", "parts", "found"),
    [
        (gamma, {}, {"gradients/objective": 1}),
        (infinite, {}, {"gradients/objective": 2}),
        (GammaTree(), {}, {"gradients/objective": 1}),
    ],
)
def test_kinds_of_objectives(
    tmp_path: Path, objective: Any, parts: dict[str, Any], found: dict[str, int]
) -> None:
    train(tmp_path / "run", objective, **parts)
    first = open_run(tmp_path / "run").findings()[0]
    assert {str(first.tensor): first.value} == found
    assert first.step == 0


def test_an_objective_may_compute_in_place(tmp_path: Path) -> None:
    data = rows()
    label = data.get_label()
    label += 1
    label[BAD_ROW] = 0.5
    data.set_label(label)
    train(tmp_path / "run", in_place, data)
    # The prediction before was 0.5, not what the objective has made of it.
    found = contents(tmp_path / "run", 0)
    np.testing.assert_array_equal(found["predictions"], np.full(442, 0.5, np.float32))
    assert found["bad_rows"].tolist() == [BAD_ROW]


def test_an_estimator(tmp_path: Path) -> None:
    x, y = rows().get_data().toarray(), rows().get_label()
    hook = Hook(tmp_path / "run", collections={}, guard="nonfinite")
    model = xgboost.XGBRegressor(
        objective=poisson, n_estimators=ROUNDS, n_jobs=1, callbacks=[hook.xgboost()]
    )
    model.fit(x, y)
    hook.close()
    found = contents(tmp_path / "run", taken(tmp_path / "run")[0])
    assert found["objective"] == {"name": "poisson", "call": "estimator"}
    np.testing.assert_array_equal(found["bad_rows"], np.flatnonzero(found["predictions"] > 1))
    assert "objectives:poisson --bisect" in open_run(tmp_path / "run").findings()[0].remedy
    assert pickle.loads(pickle.dumps(model)).objective is poisson


def test_a_cross_validation_names_the_fold(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run", collections={}, guard="nonfinite")
    folds = [([*range(100, 442)], [*range(100)]), ([*range(342)], [*range(342, 442)])]
    xgboost.cv({}, rows(), 3, obj=gamma, folds=folds, callbacks=[hook.xgboost()])
    hook.close()
    found = contents(tmp_path / "run", 0)
    assert found["fold"] == "fold1"
    assert found["bad_rows"].tolist() == [BAD_ROW]
    assert "in round 0 of fold1" in open_run(tmp_path / "run").findings()[0].seen


@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        (squared_error, {}),
        (squared_error, {"booster": "dart", "rate_drop": 0.5}),
        (squared_error, {"subsample": 0.5, "tree_method": "approx"}),
        (squared_error, {"booster": "gblinear"}),
        (Squared(), {"num_parallel_tree": 2}),
        (None, {"eta": 0.1}),
    ],
)
def test_a_healthy_training_is_the_same_and_silent(
    tmp_path: Path, objective: Callable[..., Any] | None, parameters: dict[str, Any]
) -> None:
    data = rows()
    data.set_label(data.get_label() + 1)
    plain = train(None, objective, data, **parameters)
    every = SnapshotSettings(every=3)
    guarded = train(tmp_path / "run", objective, data, every, **parameters)
    assert plain.save_raw("ubj") == guarded.save_raw("ubj")
    assert plain.save_config() == guarded.save_config()
    assert open_run(tmp_path / "run").findings() == []
    # The rounds of an objective of XGBoost are not looked at.
    assert taken(tmp_path / "run") == ([0, 3, 6] if objective else [])
    assert xgboost.Booster.update is _UPDATE


def boosted(run: Path | None, bad: int | None, **parameters: Any) -> bytes:
    """Pass gradients to `Booster.boost`, in one round with two that are not finite."""
    data, hook = rows(), None if run is None else Hook(run, collections={}, guard="nonfinite")
    callbacks = CallbackContainer([] if hook is None else [hook.xgboost()])
    given = {"nthread": 1, "base_score": 0.5, "seed": 3, **parameters}
    booster = callbacks.before_training(xgboost.Booster(given, [data]))
    for number in range(ROUNDS):
        callbacks.before_iteration(booster, number, data, None)
        margin = booster.predict(data, output_margin=True, training=True)
        gradient, hessian = squared_error(margin, data)
        if number == bad:
            hessian[[BAD_ROW, 40]] = np.nan
        booster.boost(data, number, grad=gradient, hess=hessian)
        callbacks.after_iteration(booster, number, data, [(data, "train")])
    callbacks.after_training(booster)
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return bytes(booster.save_raw("ubj"))


@pytest.mark.parametrize("parameters", [{}, {"booster": "dart", "rate_drop": 0.5}])
def test_gradients_that_a_loop_passes_itself(tmp_path: Path, parameters: dict[str, Any]) -> None:
    assert boosted(tmp_path / "run", 5, **parameters) == boosted(None, 5, **parameters)
    assert taken(tmp_path / "run") == [5]
    found = contents(tmp_path / "run", 5)
    assert found["bad_rows"].tolist() == [BAD_ROW, 40]
    before = xgboost.Booster(model_file=bytearray(found["booster"].tobytes()))
    np.testing.assert_array_equal(before.predict(rows(), output_margin=True), found["predictions"])
    (finding,) = open_run(tmp_path / "run").findings()
    assert re.match(r"Booster\.boost .* not finite in round 5: hessian of 2\b", finding.seen)
    # The function that computes them runs again as an objective.
    again = replay(
        open_snapshot(tmp_path / "run" / "snapshots" / "step-5"),
        "tests.capture.xgboost_.objectives:squared_error",
    )
    # In a round, DART leaves out trees, which the recorded predictions have.
    assert again.comparison.different == (["gradient", "hessian"] if parameters else ["hessian"])
    assert (xgboost.Booster.update, xgboost.Booster.boost) == (_UPDATE, _BOOST)


def test_a_healthy_loop_is_silent(tmp_path: Path) -> None:
    assert boosted(tmp_path / "run", None) == boosted(None, None)
    assert open_run(tmp_path / "run").findings() == []


@pytest.mark.parametrize("parameters", [{}, {"booster": "dart", "rate_drop": 0.5}])
def test_an_alarm_changes_nothing(tmp_path: Path, parameters: dict[str, Any]) -> None:
    plain = train(None, gamma, **parameters)
    guarded = train(tmp_path / "run", gamma, **parameters)
    assert plain.save_raw("ubj") == guarded.save_raw("ubj")
    assert taken(tmp_path / "run") == [0, 1, 2]


def test_the_booster_gets_the_objects_that_the_objective_returned(tmp_path: Path) -> None:
    passed: list[bool] = []

    class Same(GammaTree):
        """Notes whether XGBoost passes on what it returned."""

        returned: Any = None

        def __call__(self, iteration: int, y_pred: Any, dtrain: xgboost.DMatrix) -> Any:
            """Return gradient and Hessian."""
            self.returned = super().__call__(iteration, y_pred, dtrain)
            return self.returned

        def split_grad(self, iteration: int, grad: Any, hess: Any) -> Any:
            """Return gradient and Hessian for splits."""
            passed.append(grad is self.returned[0] and hess is self.returned[1])
            return super().split_grad(iteration, grad, hess)

    train(tmp_path / "run", Same())
    assert passed == [True] * ROUNDS


@pytest.mark.thorough
def test_an_unchanged_script(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import numpy as np
        import xgboost

        generator = np.random.default_rng(0)
        x = generator.normal(size=(200, 4))
        y = np.abs(x[:, 0])
        y[31] = 0

        def relative(labels, predictions):
            with np.errstate(all="ignore"):
                return predictions / labels - 1, np.ones_like(labels)

        model = xgboost.XGBRegressor(objective=relative, n_estimators=4, n_jobs=1)
        model.fit(x, y)
        print(model.get_booster().num_boosted_rounds())
        """,
    )
    done = attached("--guard", "nonfinite", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "4"
    assert re.search(r"\brelative\b.* not finite in round 0\b", done.stderr)
    assert contents(tmp_path / "runs" / "run", 0)["bad_rows"].tolist() == [31]
