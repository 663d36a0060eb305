"""The rules about trees fire on faulty boosting and ignore near misses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tests.rules.trees.trainings import boost, found, hook_for, mislabelled, tumours
from vinedresser.capture import open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.losses.overfitting import Overfitting
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.trees.empty_trees import EmptyTrees
from vinedresser.rules.trees.feature_dominance import FeatureDominance
from vinedresser.rules.trees.tree_depth import TreeDepth
from vinedresser.testing.runs import make_run, step_record

ALL = (TreeDepth, EmptyTrees, FeatureDominance)


@pytest.mark.thorough
def test_deep_trees_on_noisy_labels_are_found(tmp_path: Path) -> None:
    (finding,) = boost(tmp_path / "run", [TreeDepth()], mislabelled(), max_depth=16)
    assert (finding.fault, finding.severity) == ("tree_depth", "warning")
    assert finding.value > 10
    assert "lower max_depth from 16 to 6" in finding.remedy
    assert finding.correction == {"max_depth": 6}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "params",
    [
        # As deep as the rule allows; and deep, but hardly better on their own rows.
        {"max_depth": 6},
        {"max_depth": 16, "eta": 0.01, "min_child_weight": 5, "rounds": 30},
        # Long but small.
        {"max_depth": 0, "grow_policy": "lossguide", "max_leaves": 31, "tree_method": "hist"},
    ],
)
def test_shallow_trees_are_ignored(tmp_path: Path, params: dict[str, Any]) -> None:
    assert boost(tmp_path / "run", [TreeDepth()], mislabelled(), **params) == []


def test_a_deep_forest_is_ignored(tmp_path: Path) -> None:
    x, y = mislabelled(1500)
    rules = [TreeDepth()]
    with hook_for(tmp_path / "run", rules) as hook:
        model = RandomForestClassifier(40, random_state=0, n_jobs=1)
        hook.sklearn(model, validation=(x[1000:], y[1000:])).fit(x[:1000], y[:1000])
    assert max(tree.get_depth() for tree in model.estimators_) > 10
    assert found(tmp_path / "run", rules) == []


@pytest.mark.parametrize("parameter", [{"gamma": 1e5}, {"min_child_weight": 1e5}])
def test_the_parameter_that_prevents_splits_is_reported(
    tmp_path: Path, parameter: dict[str, Any]
) -> None:
    (finding,) = boost(tmp_path / "run", [EmptyTrees()], tumours(), rounds=30, **parameter)
    ((name, value),) = parameter.items()
    assert (finding.fault, finding.severity, finding.step) == ("over_regularisation", "stop", 10)
    assert f"{name} = {value:g} prevents every split" in finding.cause


def test_constant_features_are_found(tmp_path: Path) -> None:
    x, y = tumours()
    (finding,) = boost(tmp_path / "run", [EmptyTrees()], (np.zeros_like(x), y), rounds=30)
    assert "constant" in finding.cause


def test_an_ensemble_that_learned_only_a_constant_is_found(tmp_path: Path) -> None:
    # The loss falls a lot, since the counts are far from 0.5, with which XGBoost begins.
    x, _ = tumours()
    counts = np.random.default_rng(0).poisson(20.0, len(x)).astype(float)
    settings: dict[str, Any] = {"objective": "count:poisson", "base_score": 0.5, "gamma": 1e7}
    (finding,) = boost(tmp_path / "run", [EmptyTrees()], (x, counts), rounds=30, **settings)
    assert (finding.fault, finding.severity) == ("over_regularisation", "warning")
    assert "gamma = 1e7 prevents every split" in finding.cause


def test_equal_labels_are_found(tmp_path: Path) -> None:
    x, y = tumours()
    settings: dict[str, Any] = {"objective": "reg:squarederror", "base_score": 3.0}
    (finding,) = boost(tmp_path / "run", [EmptyTrees()], (x, 3.0 + 0 * y), rounds=30, **settings)
    assert finding.fault == "single_label"


def test_empty_trees_after_learning_are_ignored(tmp_path: Path) -> None:
    # The weights of learned rows vanish until there are none left to split.
    x, y = tumours()
    path = tmp_path / "run"
    assert boost(path, [EmptyTrees()], (x, y), rounds=150, min_child_weight=3, eta=1.0) == []
    depths = open_run(path).scalars("trees")["trees/depth"].values
    assert depths[-1] == 0


def test_learning_stumps_are_ignored(tmp_path: Path) -> None:
    assert boost(tmp_path / "run", [EmptyTrees()], tumours(), max_depth=1) == []


def test_a_feature_derived_from_the_label_is_found(tmp_path: Path) -> None:
    x, y = tumours()
    leak = y + np.random.default_rng(0).normal(0, 0.2, len(y))
    names = [*(f"measure_{n}" for n in range(30)), "outcome_code"]
    rows = (np.column_stack([x, leak]), y)
    (finding,) = boost(tmp_path / "run", [FeatureDominance()], rows, names=names)
    assert (finding.fault, finding.severity) == ("feature_dominance", "warning")
    assert next(iter(finding.evidence["shares"])) == "outcome_code"
    assert "whether outcome_code is known" in finding.remedy


def test_few_or_balanced_features_are_ignored(tmp_path: Path) -> None:
    x, y = tumours()
    assert boost(tmp_path / "few", [FeatureDominance()], (x[:, :5], y)) == []
    assert boost(tmp_path / "even", [FeatureDominance()], mislabelled()) == []


def test_shares_are_computed_from_totals(tmp_path: Path) -> None:
    gains = np.array([6.0, 1.0, 3.0, *[0.25] * 8])
    records = [
        step_record(step, tensors={"feature_importance/total_gain": gains})
        for step in range(0, 40, 10)
    ]
    names = [f"n{n}" for n in range(11)]
    make_run(tmp_path / "run", records, features=names)
    (finding,) = found(tmp_path / "run", [FeatureDominance(threshold=0.8)])
    assert finding.value == pytest.approx(10 / 12)
    assert list(finding.evidence["shares"]) == ["n0", "n2", "n1"]
    assert finding.since == 0
    assert finding.step == 20
    assert found(tmp_path / "run", [FeatureDominance(threshold=0.84)]) == []


def test_unused_features_are_reported(tmp_path: Path) -> None:
    x, y = tumours()
    padded = np.column_stack([x[:, :8], np.zeros((len(x), 12))])
    names = [*(f"measure_{n}" for n in range(8)), *(f"empty_{n}" for n in range(12))]
    # Whether or not the rule has reported that some dominate.
    for threshold, count in ((0.01, 2), (0.999, 1)):
        rules = rules_from_table({"unused_features": {"threshold": threshold}})
        folder = tmp_path / str(threshold)
        found = boost(folder, rules, (padded, y), names=names)
        assert len(found) == count
        assert found[-1].value == pytest.approx(0.6)
        assert found[-1].evidence["unused"] == names[8:]
    assert boost(tmp_path / "all", [FeatureDominance(threshold=0.999)], (x, y)) == []


def test_overfitting_boosting_is_found(tmp_path: Path) -> None:
    rows = mislabelled(1200)
    (finding,) = boost(tmp_path / "run", [Overfitting()], rows, rounds=120, max_depth=8)
    assert finding.tensor == "losses/valid-logloss"
    assert finding.mode == "eval"
    params: dict[str, Any] = {"rounds": 60, "max_depth": 2, "eta": 0.05}
    assert boost(tmp_path / "shallow", [Overfitting()], rows, **params) == []


def test_a_training_without_trees_is_ignored(tmp_path: Path) -> None:
    records = [step_record(step, scalars={"losses/l": 1.0}) for step in range(50)]
    make_run(tmp_path / "run", records)
    assert found(tmp_path / "run", [kind() for kind in ALL]) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TreeDepth(depth=0), "depth = 0: must be at least 1"),
        (lambda: FeatureDominance(at_least=3), "at_least = 3: must be more than features = 3"),
        (lambda: FeatureDominance(share=1.5), r"share = 1\.5: must lie above 0"),
        (lambda: EmptyTrees(drop=1.0), "drop = 1: must lie between 0 and 1"),
    ],
)
def test_invalid_parameters_raise(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
