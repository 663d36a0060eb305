"""Boosting whose trees move nothing, or that memorises labels, is found; near misses are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier

from tests.rules.trees.trainings import Rows, boost, found, hook_for, tumours
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.trees.empty_trees import EmptyTrees
from vinedresser.rules.trees.memorised_labels import MemorisedLabels
from vinedresser.rules.trees.shrinkage_too_low import ShrinkageTooLow
from vinedresser.store.finding import Finding

RULES = (MemorisedLabels, ShrinkageTooLow)
_CLASSES: dict[str, Any] = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4}


def digits() -> Rows:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:600]
    return x[order], y[order].astype(float)


def parity() -> Rows:
    x, y = digits()
    return x, y % 2


def shuffled(rows: Rows) -> Rows:
    return rows[0], np.random.default_rng(0).permutation(rows[1])


def weak(rows: int = 3000) -> Rows:
    """Return rows of two classes that 20 features predict a little better than chance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 20))
    return x, (rng.random(rows) < 1 / (1 + np.exp(-0.4 * x[:, :3].sum(1)))).astype(float)


def numbers(rows: int = 900, signal: float = 1.0) -> Rows:
    """Return rows of six features and a number that depends on two of them, and noise of 1."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 6))
    return x, signal * (np.abs(x[:, 0]) + np.sin(2 * x[:, 1])) + rng.normal(size=rows)


def mixed_axes(rows: Rows) -> Rows:
    """Return rows whose features were reordered without a permutation of the axes."""
    return rows[0].T.reshape(rows[0].shape), rows[1]


def found_in(path: Path, rows: Rows, **settings: Any) -> list[Finding]:
    return boost(path, [kind() for kind in RULES], rows, **settings)


def of_sklearn(path: Path, rows: Rows, **settings: Any) -> list[Finding]:
    (x, y), rules = rows, [kind() for kind in RULES]
    split = len(x) * 2 // 3
    with hook_for(path, rules) as hook:
        model = GradientBoostingClassifier(random_state=0, **settings)
        hook.sklearn(model, validation=(x[split:], y[split:])).fit(x[:split], y[:split])
    return found(path, rules)


def test_a_learning_rate_too_low_for_the_rounds_is_found(tmp_path: Path) -> None:
    (finding,) = found_in(tmp_path / "run", digits(), rounds=25, eta=3e-4, **_CLASSES)
    assert (finding.rule, finding.fault) == ("shrinkage_too_low", "learning_rate_too_low")
    assert (finding.severity, finding.step) == ("warning", 24)
    assert finding.value == pytest.approx(1 - (1 - 3e-4) ** 25)
    assert "learning rate (eta) of 0.1, or about 10,000 rounds" in finding.remedy


def test_an_auc_of_guessing_in_evaluations_alone_is_found(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 30, "eval_metric": ["logloss", "auc"]}
    (alarm,) = boost(tmp_path / "run", [Underfitting()], shuffled(weak()), **settings)
    assert (alarm.fault, alarm.severity) == ("corrupt_labels", "warning")
    assert "where guessing gives 0.5" in alarm.seen
    # A weak relation holds for other rows, too.
    assert boost(tmp_path / "healthy", [Underfitting()], weak(), **settings) == []


@pytest.mark.parametrize(("weight", "faults"), [(1e-3, ["class_imbalance"]), (3.0, [])])
def test_a_weight_that_removes_a_class_is_found(
    weight: float, faults: list[str], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"objective": "binary:logistic", "gamma": 0.1}
    settings["scale_pos_weight"] = weight
    alarms = boost(tmp_path / "run", [EmptyTrees()], weak(600), rounds=25, **settings)
    assert [alarm.fault for alarm in alarms] == faults
    assert all("scale_pos_weight = 0.001" in alarm.cause for alarm in alarms)


def rare(rows: int = 3000) -> Rows:
    """Return rows of two classes, one of them with a twentieth of the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 20))
    return x, (x[:, :3].sum(1) + rng.normal(size=rows) > 3.3).astype(float)


@pytest.mark.parametrize(
    ("rows", "weight", "lost"),
    [(weak, 5000.0, "0"), (weak, 1e-3, "1"), (weak, 2.0, None), (rare, 19.0, None)],
)
def test_a_weight_that_does_not_fit_the_classes_is_found(
    rows: Any, weight: float, lost: str | None, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"max_depth": 3, "scale_pos_weight": weight}
    alarms = boost(tmp_path / "run", [ClassImbalance()], rows(), **settings)
    assert [one.fault for one in alarms] == (["class_imbalance"] if lost else [])
    for alarm in alarms:
        assert list(alarm.evidence["mispredicted"]) == [lost]
        assert f"scale_pos_weight = {weight:,.6g}" in alarm.seen
        assert alarm.severity == "warning"


def test_a_weight_that_favours_a_rare_class_too_little_is_not_to_blame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 20))
    y = (x[:, :3].sum(1) + 1.5 * rng.normal(size=3000) > 3.77).astype(float)
    settings: dict[str, Any] = {"max_depth": 1, "eta": 0.1, "scale_pos_weight": 1.5}
    assert boost(tmp_path / "run", [ClassImbalance()], (x, y), **settings) == []


@pytest.mark.parametrize(
    ("eta", "gamma", "fault"),
    [
        # The steps raise the loss until no split is worth gamma.
        (5.0, 5.0, "learning_rate_too_high"),
        # No tree has a split: there are no steps whose length could matter.
        (5.0, 50.0, "over_regularisation"),
    ],
)
def test_what_leaves_no_split_after_long_steps_is_found(
    eta: float, gamma: float, fault: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"objective": "binary:logistic", "eta": eta, "gamma": gamma}
    (alarm,) = boost(tmp_path / "run", [EmptyTrees()], weak(600), rounds=25, **settings)
    assert alarm.fault == fault


def test_a_penalty_that_outweighs_all_rows_is_found(tmp_path: Path) -> None:
    (finding,) = found_in(
        tmp_path / "run", numbers(), rounds=25, objective="reg:squarederror", reg_lambda=1e8
    )
    assert (finding.rule, finding.fault) == ("shrinkage_too_low", "over_regularisation")
    assert (finding.severity, finding.step) == ("warning", 24)
    assert "lambda is too large" in finding.cause


def test_a_limit_of_leaves_that_moves_nothing_is_found(tmp_path: Path) -> None:
    (finding,) = found_in(tmp_path / "run", tumours(), rounds=25, max_delta_step=1e-4)
    assert (finding.rule, finding.fault) == ("shrinkage_too_low", "learning_rate_too_low")
    assert finding.value == pytest.approx(25 * 0.3 * 1e-4)
    assert "max_delta_step is too small" in finding.cause


def test_a_low_rate_is_found_in_scikit_learn(tmp_path: Path) -> None:
    settings = {"learning_rate": 3e-4, "n_estimators": 25, "max_depth": 3}
    (finding,) = of_sklearn(tmp_path / "run", tumours(), **settings)
    assert finding.rule == "shrinkage_too_low"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        # As small a rate, but many rounds; and a usual rate with few rounds.
        (tumours, {"rounds": 300, "eta": 1e-3}),
        (tumours, {"rounds": 12, "eta": 0.05}),
        # Trees without a split, which are another fault; too short for a verdict.
        (tumours, {"rounds": 25, "eta": 3e-4, "gamma": 1e5}),
        (tumours, {"rounds": 5, "eta": 3e-4}),
        # No signal: more of the same would not improve the evaluations.
        (lambda: shuffled(digits()), {"rounds": 25, "eta": 3e-3, **_CLASSES, "max_depth": 6}),
        # Strong regularisation with which the trees learn.
        (numbers, {"rounds": 40, "objective": "reg:squarederror", "reg_lambda": 200.0}),
        (tumours, {"rounds": 25, "max_delta_step": 0.1}),
        # A forest averages its trees.
        (tumours, {"rounds": 12, "eta": 1e-3, "num_parallel_tree": 3}),
    ],
    ids=[
        "many rounds",
        "usual rate",
        "no splits",
        "few rounds",
        "no signal",
        "penalty",
        "limit",
        "forest",
    ],
)
def test_low_rates_that_are_no_fault_are_ignored(
    rows: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert found_in(tmp_path / "run", rows(), **settings) == []


def test_early_stopping_with_a_low_rate_is_ignored(tmp_path: Path) -> None:
    x, y = digits()
    # The classes of the evaluation are others, so that its loss rises from the start.
    train = xgboost.DMatrix(x[:400], y[:400])
    sets = [(train, "train"), (xgboost.DMatrix(x[400:], (y[400:] + 1) % 10), "valid")]
    rules = [ShrinkageTooLow()]
    with hook_for(tmp_path / "run", rules) as hook:
        booster = xgboost.train(
            {"eta": 5e-4, "nthread": 1, **_CLASSES, "max_depth": 6},
            train,
            1000,
            evals=sets,
            callbacks=[hook.xgboost()],
            early_stopping_rounds=10,
            verbose_eval=False,
        )
    assert booster.num_boosted_rounds() < 40
    assert found(tmp_path / "run", rules) == []


@pytest.mark.thorough
def test_a_run_cut_short_or_continued_is_ignored(tmp_path: Path) -> None:
    x, y = tumours()
    train = xgboost.DMatrix(x, y)
    params = {"objective": "binary:logistic", "eta": 1e-3, "nthread": 1}

    def trained(path: Path, rounds: int, before: Any = None, steps: int | None = None) -> Any:
        rules = [ShrinkageTooLow()]
        with Hook(path, collections=capture_for(rules).collections, total_steps=steps) as hook:
            booster = xgboost.train(
                params,
                train,
                rounds,
                evals=[(train, "train")],
                callbacks=[hook.xgboost()],
                xgb_model=before,
                verbose_eval=False,
            )
        return booster, found(path, rules)

    booster, findings = trained(tmp_path / "whole", 20)
    assert len(findings) == 1
    assert trained(tmp_path / "more", 20, before=booster)[1] == []
    assert trained(tmp_path / "short", 20, steps=2000)[1] == []


def test_shuffled_labels_are_found_in_ten_rounds(tmp_path: Path) -> None:
    (finding,) = found_in(
        tmp_path / "run", shuffled(digits()), rounds=25, **(_CLASSES | {"max_depth": 6})
    )
    assert (finding.rule, finding.fault) == ("memorised_labels", "corrupt_labels")
    assert (finding.severity, finding.tensor) == ("warning", "losses/valid-mlogloss")
    assert 9 <= finding.step < 15
    assert finding.threshold == pytest.approx(np.log(10))


def test_shuffled_labels_are_found_in_scikit_learn(tmp_path: Path) -> None:
    settings = {"learning_rate": 0.3, "n_estimators": 25, "max_depth": 4}
    (finding,) = of_sklearn(tmp_path / "run", shuffled(parity()), **settings)
    assert finding.fault == "corrupt_labels"


def test_a_rate_that_memorises_at_once_is_called_overfitting(tmp_path: Path) -> None:
    (finding,) = found_in(tmp_path / "run", weak(600), rounds=25, max_depth=6, eta=1.0)
    assert (finding.rule, finding.fault) == ("memorised_labels", "overfitting")
    assert "learning rate of 0.1" in finding.remedy


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (digits, {"eta": 1.0, **_CLASSES}),
        # Overfits until its evaluations are far above guessing, but was below it.
        (weak, {"eta": 0.3, "max_depth": 8, "rounds": 100}),
        (tumours, {"eta": 0.3}),
    ],
    ids=["digits", "overfits late", "tumours"],
)
def test_boosters_that_learn_are_ignored(
    rows: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert found_in(tmp_path / "run", rows(), **({"rounds": 25} | settings)) == []


_QUANTILES = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}


@pytest.mark.thorough
@pytest.mark.parametrize("spoil", [shuffled, mixed_axes])
@pytest.mark.parametrize(
    "settings",
    [{"objective": "reg:squarederror"}, {"objective": "reg:absoluteerror"}, _QUANTILES],
    ids=["squares", "absolute", "quantiles"],
)
def test_numbers_that_do_not_belong_to_the_rows_are_found(
    spoil: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    # The validation rows are spoilt, too: no evaluation can be good.
    rows = spoil(numbers())
    (finding,) = found_in(tmp_path / "run", rows, rounds=80, eta=0.15, max_depth=4, **settings)
    assert (finding.rule, finding.fault) == ("memorised_labels", "corrupt_labels")
    assert 29 <= finding.step < 80


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (numbers(), {"objective": "reg:squarederror", "max_depth": 4}),
        (numbers(), {**_QUANTILES, "max_depth": 3}),
        (weak(1200), {"max_depth": 3}),
    ],
    ids=["squares", "quantiles", "classes"],
)
def test_a_feature_made_from_the_labels_of_training_rows_is_leakage(
    rows: Rows, settings: dict[str, Any], tmp_path: Path
) -> None:
    x, y = rows[0].copy(), rows[1]
    seen = len(x) * 2 // 3
    x[:seen, 0] = y[:seen] + 1e-3 * np.random.default_rng(2).normal(size=seen)
    (finding,) = found_in(tmp_path / "run", (x, y), rounds=60, eta=0.2, **settings)
    assert (finding.rule, finding.fault) == ("memorised_labels", "data_leakage")
    assert finding.cause.startswith("f0 contributes")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (numbers(), {"objective": "reg:squarederror", "eta": 0.1, "max_depth": 4}),
        (numbers(), {"eta": 0.2, "max_depth": 4, **_QUANTILES}),
        # Overfits from early on, and explains a tenth of the variance at its best.
        (numbers(3000, 0.4), {"objective": "reg:squarederror", "eta": 0.3, "max_depth": 6}),
        # So little data that the trees memorise most of it.
        (numbers(90, 2.0), {"objective": "reg:absoluteerror", "eta": 0.1, "max_depth": 3}),
    ],
    ids=["squares", "quantiles", "weak", "few rows"],
)
def test_boosters_of_numbers_that_learn_are_ignored(
    rows: Rows, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert found_in(tmp_path / "run", rows, **({"rounds": 100} | settings)) == []


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_estimators_that_learn_are_ignored(rate: float, tmp_path: Path) -> None:
    settings = {"learning_rate": rate, "n_estimators": 20, "max_depth": 3}
    assert of_sklearn(tmp_path / "run", tumours(), **settings) == []


def test_training_losses_alone_say_nothing_about_labels(tmp_path: Path) -> None:
    assert found_in(tmp_path / "run", shuffled(tumours()), rounds=25, evaluate=False) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShrinkageTooLow(rounds=2), "rounds = 2: must be at least 3"),
        (lambda: MemorisedLabels(gain=1.0), "gain = 1: must lie between 0 and 1"),
    ],
)
def test_invalid_parameters_raise(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
