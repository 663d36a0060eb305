"""Presets: their rules, and their selection in files and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from vinedresser.errors import ConfigError
from vinedresser.rules.presets import PRESETS, STATED, preset_table
from vinedresser.rules.registry import RULES, rules_from_table
from vinedresser.rules.signals.base import signals_of
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.testing.runs import make_run, step_record

TREES = {
    *("tree_depth", "empty_trees", "shrinkage_too_low", "shrinkage_too_high"),
    *("memorised_labels", "feature_dominance"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_makes_rules(name: str) -> None:
    rules = rules_from_table(PRESETS[name])
    assert [rule.name for rule in rules] == [rule for rule in RULES if rule in PRESETS[name]]


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_is_documented(name: str) -> None:
    assert f"\n| `{name}` |" in (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


def test_rules_leave_themselves_out_of_presets_that_exist() -> None:
    for name, rule in RULES.items():
        assert set(rule.left_out_of) <= set(PRESETS)
        assert not any(name in PRESETS[preset] for preset in rule.left_out_of)


def test_severity_presets() -> None:
    assert list(PRESETS["default"]) == list(RULES)
    assert PRESETS["none"] == {}
    for rule in rules_from_table(PRESETS["strict"]):
        default = RULES[rule.name].severity
        assert rule.severity == ("stop" if default == "warning" else default)
    assert list(PRESETS["advisory"]) == list(RULES)
    for rule in rules_from_table(PRESETS["advisory"]):
        default = RULES[rule.name].severity
        assert rule.severity == ("warning" if default == "stop" else default)
    assert {RULES[name].severity for name in PRESETS["quiet"] if name not in STATED} == {"stop"}
    assert {"nonfinite", "loss_not_decreasing"} <= set(PRESETS["quiet"])


def test_task_presets_leave_out_what_does_not_apply() -> None:
    for task in ("classification", "regression", "autoencoder", "language_model"):
        assert not TREES & set(PRESETS[task])
        assert {"nonfinite", "overfitting", "replica_divergence"} <= set(PRESETS[task])
        faults = {RULES[name].fault for name in PRESETS[task]}
        assert (task == "classification") or "classifier_confusion" not in faults
        assert task in ("regression", "autoencoder") or "unnormalised_targets" not in faults
    trees = set(PRESETS["boosted_trees"])
    assert TREES | {"overfitting", "stalled_training"} <= trees
    # None of them requires data that only layers have.
    for rule in rules_from_table(PRESETS["boosted_trees"]):
        wanted = {need.collection for need in rule.all_needs if need.required}
        assert not wanted & {"gradients", "weights", "outputs", "updates", "activations"}


def test_adversaries_are_not_judged_by_their_losses() -> None:
    chosen = rules_from_table(PRESETS["adversarial"])
    assert "nonfinite" in {rule.name for rule in chosen}
    for rule in chosen:
        assert not any(isinstance(signal, LearningOutcome) for signal in signals_of(rule))


def test_a_preset_is_a_copy() -> None:
    preset_table("default")["nonfinite"]["every"] = 3
    assert PRESETS["default"]["nonfinite"] == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("strickt", "rules: no such preset 'strickt'; did you mean strict?"),
        ("zzz", f"rules: no such preset 'zzz'; the presets are {', '.join(PRESETS)}"),
        (3, "rules: no such preset 3; the presets are"),
    ],
)
def test_an_unknown_preset_is_refused(name: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        preset_table(name, where="rules")
    assert str(caught.value).startswith(message)


def test_a_rules_table_in_an_experiment_overrides_the_preset(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "experiment.toml").write_text(
        """
        [run]
        name = "r"
        command = ["python", "train.py"]
        [rules]
        preset = "strict"
        slow_input = false
        [rules.tree_depth]
        depth = 4
        """,
        encoding="utf-8",
    )
    (group,) = load_experiment(tmp_path / "experiment.toml").rules.values()
    assert group["tree_depth"] == {"severity": "stop", "depth": 4}
    assert "slow_input" not in group
    assert "nonfinite" in group


@pytest.mark.thorough
def test_judge_accepts_a_preset(tmp_path: Path) -> None:
    losses = [1.0, float("nan")]
    records = [step_record(step, scalars={"losses/l": loss}) for step, loss in enumerate(losses)]
    make_run(tmp_path / "run", records)
    said = vinedresser("judge", "run", "--preset", "adversarial", cwd=tmp_path)
    assert "nonfinite" in said.stdout
    assert "loss_not_decreasing" not in said.stdout
    # The preset has no rule about NaN; the command line adds one.
    options = ("--preset", "boosted_trees", "--rule", "nonfinite:severity='info'")
    assert "nonfinite since step 1" in vinedresser("judge", "run", *options, cwd=tmp_path).stdout
    wrong = vinedresser("judge", "run", "--preset", "quite", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--preset quite: no such preset 'quite'; did you mean quiet?" in wrong.stderr


@pytest.mark.thorough
def test_run_accepts_a_preset(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n", encoding="utf-8")
    options = ("--preset", "quiet", "--rule", "nonfinite:every=7", "--name", "r", "--no-attach")
    said = vinedresser("run", *options, "train.py", cwd=tmp_path)
    assert "trained" in said.stdout
    spec = json.loads((tmp_path / "runs" / "r" / "rules" / "default.json").read_text())
    assert list(spec["rules"]) == list(PRESETS["quiet"])
    assert spec["rules"]["nonfinite"] == {"every": 7}
