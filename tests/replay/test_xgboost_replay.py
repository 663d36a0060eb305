"""The objective of a broken round runs again in another process, down to the row."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import xgboost

from tests.capture.xgboost_.objectives import (
    BAD_ROW,
    GammaTree,
    gamma,
    infinite,
    rows,
    train,
    weighted_squares,
)
from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.explain.reports.report import write_report
from vinedresser.replay.xgboost_.stepping import bisect, replay, sample
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.store.reading.reader import open_run

OBJECTIVES = "tests.capture.xgboost_.objectives"
gamma_tree = GammaTree()


def again(run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the first round again in another process."""
    return vinedresser("replay", str(run / "snapshots" / "step-0"), *options, cwd=ROOT)


@pytest.mark.thorough
def test_the_row_is_found_and_saved(tmp_path: Path) -> None:
    train(tmp_path / "run", gamma)
    options = ("--factory", f"{OBJECTIVES}:gamma", "--bisect", "--save")
    done = again(tmp_path / "run", *options)
    assert done.returncode == 0, done.stderr
    assert "gradient and Hessian: 2 of 2 the same\n  not finite: gradient\n" in done.stdout
    assert f"sample {BAD_ROW} of 442, counted from 0, breaks the step" in done.stdout
    assert "label   float32 []\n    [0.]" in done.stdout
    page = write_report(open_run(tmp_path / "run"), tmp_path / "report.html").read_text("utf-8")
    assert "run again: gradient and Hessian: 2 of 2 the same" in page
    assert "--factory MODULE:OBJECTIVE --bisect --save" in page


@pytest.mark.thorough
def test_another_objective_differs(tmp_path: Path) -> None:
    train(tmp_path / "run", gamma)
    done = again(tmp_path / "run", "--factory", f"{OBJECTIVES}:squared_error")
    assert done.returncode == 1
    assert "1 of 2 the same\n  different: gradient" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--factory MODULE:OBJECTIVE is needed"),
        (("--locate",), "use --bisect, which finds the rows"),
        (("--what-if",), "--what-if needs a snapshot of torch"),
    ],
)
def test_what_is_not_possible_is_said(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    train(tmp_path / "run", gamma)
    done = again(tmp_path / "run", *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_weights_of_an_estimator(tmp_path: Path) -> None:
    weights = np.ones(442)
    weights[[BAD_ROW, 200]] = 0
    data = rows()
    hook = Hook(tmp_path / "run", collections={}, guard="nonfinite")
    model = xgboost.XGBRegressor(
        objective=weighted_squares, n_estimators=2, n_jobs=1, callbacks=[hook.xgboost()]
    )
    model.fit(data.get_data().toarray(), data.get_label(), sample_weight=weights)
    hook.close()
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / "step-0")
    replayed = replay(snapshot, f"{OBJECTIVES}:weighted_squares")
    assert replayed.comparison.exact
    found = bisect(replayed)
    assert found is not None
    assert found.found.samples[0][1] in (BAD_ROW, 200)
    shown = {one.name: one.values.tolist() for one in sample(replayed, *found.samples[0])}
    assert shown["weight"] == [0.0]


def test_kinds_of_objectives(tmp_path: Path) -> None:
    train(tmp_path / "tree", gamma_tree)
    train(tmp_path / "large", infinite)
    tree = open_snapshot(tmp_path / "tree" / "snapshots" / "step-0")
    assert replay(tree, f"{__name__}:gamma_tree").comparison.exact
    large = open_snapshot(tmp_path / "large" / "snapshots" / "step-0")
    replayed = replay(large, f"{OBJECTIVES}:infinite")
    assert replayed.comparison.exact
    assert replayed.outcome.nonfinite == [("", "gradient")]


def test_groups_stay_together(tmp_path: Path) -> None:
    data = rows()
    data.set_group([200, 242])
    data.set_weight([1.0, 2.0])
    train(tmp_path / "run", gamma, data)
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / "step-0")
    replayed = replay(snapshot, f"{OBJECTIVES}:gamma")
    assert replayed.comparison.exact
    assert replayed.step.matrix().get_group().tolist() == [200, 242]
    assert bisect(replayed) is None


def test_a_wrong_objective_is_named(tmp_path: Path) -> None:
    train(tmp_path / "run", gamma)
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / "step-0")
    with pytest.raises(ConfigError, match="the objective returned a list; expected the arrays"):
        replay(snapshot, f"{__name__}:no_pair")
    with pytest.raises(ConfigError, match="has no function missing"):
        replay(snapshot, f"{__name__}:missing")
    models = snapshot.record.contents["models"]["dict"][0][1]
    models["dict"] = [pair for pair in models["dict"] if pair[0] != "predictions"]
    with pytest.raises(CorruptData, match="not the contents of a round"):
        replay(snapshot, f"{OBJECTIVES}:gamma")


def no_pair(*_: object) -> list[int]:
    return [1]
