"""Pre-flight checks of real scripts: what the rules find in a trial, and what only probes find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.preflight.trainings import LANGUAGE, LIGHTNING, USUAL, script
from vinedresser.preflight.launching import Preflight, check_script
from vinedresser.preflight.names import PROBES, RULE_CHECK
from vinedresser.preflight.verdict import FINE, SUSPICIOUS, UNCHECKED
from vinedresser.store.reading.reader import open_run

STEP = "loss = loss_fn({}, wanted); loss.backward()"
ERRORS = (
    "loss = nn.functional.mse_loss({}, nn.functional.one_hot(wanted, 10).float()); loss.backward()"
)
# A binary cross entropy for ten classes.
BY_HAND = (
    "chance, wide = model(rows)[:, 0].sigmoid(), wanted.float(); "
    "loss = -(wide * chance.log() + (1 - wide) * (1 - chance).log()).mean(); loss.backward()"
)
FIXED = f"rows, wanted = fixed; {STEP.format('model(rows)')}"
MASKED = "inputs.where(torch.rand(32, 16) < 0.2, -100)"
# Those that train copies take seconds.
SLOW = ("overfit", "learning_rate", "scales")
QUICK = dict.fromkeys([RULE_CHECK, *(name for name in PROBES if name not in SLOW)], FINE) | {
    # There are no tokens.
    "future": UNCHECKED
}
# Changes of the script, and the rule that finds each within the steps of a check.
FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "clearing": ({"clear": "pass"}, "gradients_not_cleared"),
    "cut": (
        {"forward": "hidden = torch.tensor(hidden.detach().numpy())"},
        "untrained_parameters",
    ),
    "zero": ({"step": STEP.format("model(rows) * 0")}, "no_signal"),
    "softmax": ({"step": STEP.format("model(rows).softmax(1)")}, "loss_output_mismatch"),
    "sure": ({"step": STEP.format("50 * model(rows)")}, "initial_loss"),
    "eval": ({"before": "model.eval()"}, "wrong_mode"),
    "nan": ({"step": STEP.format("model(rows / 0)")}, "nonfinite"),
    "equal": (
        {"before": "[one.data.fill_(0.1) for one in model.parameters()]"},
        "identical_units",
    ),
    "by hand": ({"step": BY_HAND}, "nonfinite"),
    "broadcast": (
        {
            "step": "loss = nn.functional.mse_loss(model(rows)[:, :1], wanted.float()); "
            "loss.backward()"
        },
        "loss_output_mismatch",
    ),
    "fast": ({"optimizer": "SGD(model.parameters(), lr=1000.0)"}, "learning_rate_too_high"),
    "slow": ({"optimizer": "SGD(model.parameters(), lr=1e-9)"}, "learning_rate_too_low"),
    "schedule": (
        {
            "before": "rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n < 2)",
            "clear": "optimizer.zero_grad(); rates.step()",
        },
        "scheduler_not_stepped",
    ),
}
# Unusual, but healthy: a closure, a clipped gradient, a frozen layer, a warm-up, a loss by hand,
# and one that starts at 6.2 (ln 10 is 2.3).
HEALTHY: dict[str, dict[str, str]] = {
    "usual": {},
    "closure": {
        "optimizer": "LBFGS(model.parameters(), max_iter=3)",
        "before": "def closure():\n    optimizer.zero_grad()\n"
        "    value = loss_fn(model(images), labels)\n    value.backward()\n    return value\n",
        "step": "loss = optimizer.step(closure); break",
    },
    "clipped": {
        "step": "loss = loss_fn(model(rows), wanted); loss.backward(); "
        "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
    },
    "frozen": {"before": "model.first.requires_grad_(False)"},
    "warm-up": {
        "before": "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n / 1000)",
        "clear": "optimizer.zero_grad(); schedule.step()",
    },
    "by hand": {
        "step": "wide = nn.functional.one_hot(wanted, 10); loss = -(model(rows).log_softmax(1)"
        " * wide).sum(1).mean() + 1e-4 * model.last.weight.square().sum(); loss.backward()"
    },
    "6.2": {
        "before": "model.last.weight.data *= 9; optimizer.param_groups[0]['lr'] = 0.01",
    },
}


def checked(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    skip: tuple[str, ...] = SLOW,
    steps: int | None = 8,
) -> Preflight:
    """Check a script."""
    (directory / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(directory)
    return check_script(["train.py"], steps=steps, seconds=30, timeout=100, skip=skip)


def suspicions(found: Preflight) -> set[str]:
    """Return the names of the suspicious checks."""
    assert found.verdicts, found.output
    return {verdict.check for verdict in found.verdicts if verdict.state == SUSPICIOUS}


@pytest.mark.thorough
def test_a_healthy_training_is_fine_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, script())

    states = {verdict.check: verdict.state for verdict in found.verdicts}
    assert states == QUICK
    assert (found.steps, found.code) == (8, 0)
    # Its finally block has run, and there are no files but its own.
    assert sorted(os.listdir(tmp_path)) == ["ended", "train.py"]


@pytest.mark.thorough
@pytest.mark.parametrize("dead", [False, True])
def test_single_samples_are_checked_together(
    dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More steps show whether a noisy loss falls."""
    before = "model.norm = nn.Identity(); optimizer.param_groups[0]['lr'] = 0.003; "
    before += "loader = DataLoader(TensorDataset(images, labels), batch_size=1, shuffle=True)"
    before += "; model.first.bias.data.fill_(-20)" if dead else ""
    skip = ("learning_rate", "scales")
    found = checked(tmp_path, monkeypatch, script(before=before), skip=skip, steps=None)

    states = {verdict.check: verdict.state for verdict in found.verdicts}
    assert found.steps == 400
    assert states["own_input"] == (SUSPICIOUS if dead else FINE)
    assert states[RULE_CHECK] == (UNCHECKED if dead else FINE)
    # A constant learns a single sample, which it says.
    assert states["overfit"] == FINE
    assert any("and a constant learns this batch" in one.evidence for one in found.verdicts)


@pytest.mark.thorough
def test_nothing_is_fine_of_what_a_model_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, script(before="model.norm = nn.LayerNorm(32)"))

    states = {verdict.check: verdict.state for verdict in found.verdicts}
    assert states["momentum"] == UNCHECKED
    assert states["updates"] == FINE


@pytest.mark.thorough
def test_a_hook_of_the_script_captures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (
        "from vinedresser import Hook; hook = Hook('run', live=True, tunable={'lr': optimizer}); "
        "hook.watch(model, loss=loss_fn, optimizer=optimizer)"
    )
    step = f"{USUAL['step']}; hook.metric('accuracy', loss.detach())"
    found = checked(tmp_path, monkeypatch, script(before=before, step=step))

    states = {verdict.check: verdict.state for verdict in found.verdicts}
    assert states == QUICK
    assert sorted(os.listdir(tmp_path)) == ["ended", "train.py"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nor_does_its_callback_of_lightning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []
    for callbacks in ("", "from vinedresser import Hook; callbacks = [Hook('run').lightning()]"):
        found = checked(tmp_path, monkeypatch, LIGHTNING.replace("{callbacks}", callbacks))
        states.append({verdict.check: verdict.state for verdict in found.verdicts})
    assert states[0] == states[1]
    assert states[1]["own_input"] == FINE
    assert os.listdir(tmp_path) == ["train.py"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_check_and_run_find_the_same_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    changes, rule = FAULTS[name]
    text = script(**changes)
    found = suspicions(checked(tmp_path, monkeypatch, text, skip=PROBES, steps=50))

    assert rule in found
    assert found <= warned(tmp_path, text.replace("range(100)", "range(4)"))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_neither_check_nor_run_blames_a_healthy_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = script(**HEALTHY[name])
    found = checked(tmp_path, monkeypatch, text, skip=(), steps=50)

    assert not suspicions(found), found.verdicts
    assert not warned(tmp_path, text.replace("range(100)", "range(4)"))


def warned(directory: Path, text: str) -> set[str]:
    """Return the rules that warn when `vinedresser run` runs a script."""
    (directory / "train.py").write_text(text, encoding="utf-8")
    ended = vinedresser("run", "--store", "runs", "--name", "whole", "train.py", cwd=directory)
    found = open_run(directory / "runs" / "whole").findings()
    assert ended.returncode in (0, 3), ended.stderr
    return {one.rule for one in found if one.severity != "info"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("updates", {"before": "optimizer.step = lambda: None; range = lambda _: [0]"}),
        ("batches", {"before": "fixed = next(iter(loader))", "step": FIXED}),
        ("momentum", {"before": "model.norm.momentum = 0.99"}),
        ("other_samples", {"forward": "hidden = hidden.softmax(0)"}),
        # As of a recurrence that takes the samples for time: each changes those that follow.
        ("other_samples", {"forward": "hidden = hidden + hidden.cumsum(0)"}),
        ("own_input", {"forward": "hidden = 0 * hidden"}),
        ("own_input", {"forward": "for _ in range(5): hidden = (hidden / 2).sigmoid()"}),
    ],
)  # fmt: skip
def test_a_probe_finds_what_no_rule_sees_in_a_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, changes: dict[str, str]
) -> None:
    found = checked(tmp_path, monkeypatch, script(**changes))

    assert check in suspicions(found), found.verdicts


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("causal", "model", "state"),
    [
        (True, {"targets": "rows[:, 1:]", "arguments": "(inputs)"}, FINE),
        (False, {"targets": "rows[:, 1:]", "arguments": "(inputs, wanted)"}, SUSPICIOUS),
        # Masked tokens are predicted from both sides.
        (False, {"targets": MASKED, "arguments": "(inputs)"}, UNCHECKED),
    ],
)
def test_a_language_model_that_sees_the_future_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    causal: bool,
    model: dict[str, str],
    state: str,
) -> None:
    text = LANGUAGE.format(mask=causal, **model)
    found = checked(tmp_path, monkeypatch, text, skip=tuple({*PROBES} - {"future"}))

    assert {one.check: one.state for one in found.verdicts}["future"] == state, found.verdicts


@pytest.mark.slow
def test_outputs_that_are_not_finite_say_nothing_about_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, script(step=STEP.format("model(rows / 0)")))

    states = {verdict.check: verdict.state for verdict in found.verdicts}
    assert (states["own_input"], states["other_samples"]) == (UNCHECKED, UNCHECKED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"optimizer": "SGD(model.parameters(), lr=1000.0)"}, {"overfit"}),
        ({"optimizer": "SGD(model.parameters(), lr=1e-9)"}, {"overfit"}),
        (
            {
                "optimizer": "Adam(model.parameters())",
                "step": "target = 1e6 + 1e4 * nn.functional.one_hot(wanted, 10); "
                "loss = (model(rows) - target).square().mean(); loss.backward()",
            },
            {"scales"},
        ),
        (
            {
                "optimizer": "SGD(model.parameters(), lr=50.0)",
                "before": "model.norm = nn.Identity()",
                "step": ERRORS.format("model(rows)"),
            },
            {"overfit", "learning_rate"},
        ),
        (
            {
                "optimizer": "SGD(model.parameters(), lr=0.01)",
                "before": "model.norm = nn.Identity()",
                "step": ERRORS.format("model(5000 * rows)"),
            },
            {"overfit", "scales"},
        ),
    ],
)
def test_copies_show_whether_a_batch_is_learned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    expected: set[str],
) -> None:
    found = checked(tmp_path, monkeypatch, script(**changes), skip=())

    assert suspicions(found) & set(SLOW) == expected, found.verdicts


@pytest.mark.slow
def test_watched_steps_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(tmp_path, monkeypatch, script())
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert found.code == 0, found
    assert found.steps > 1
    # The step that ends it does not print; on a busy machine the check ends by its time.
    assert found.output.splitlines() == alone.stdout.splitlines()[: found.steps - 1]


@pytest.mark.slow
def test_a_script_that_fails_or_trains_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("import torch; print('here')", encoding="utf-8")
    (tmp_path / "fails.py").write_text("import torch; 1 / 0", encoding="utf-8")

    nothing = vinedresser("check", "nothing.py", cwd=tmp_path)
    fails = vinedresser("check", "fails.py", cwd=tmp_path)

    assert nothing.returncode == fails.returncode == 1
    assert "no training of PyTorch or Keras was seen" in nothing.stdout
    assert "exit code 1" in fails.stdout
    assert "ZeroDivisionError" in fails.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--skip", "own_inputs", "train.py"),
            "--skip: no check 'own_inputs'; did you mean own_input, ",
        ),
        (("nowhere.py",), "nowhere.py"),
        (("--at", "train.py"), "--at: `vinedresser check` has no such option"),
    ],
)
def test_bad_arguments_are_one_clear_error(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "train.py").touch()

    found = vinedresser("check", *arguments, cwd=tmp_path)

    assert (found.returncode, message in found.stderr) == (2, True), found.stderr


def test_verdicts_are_plain_records(tmp_path: Path) -> None:
    place = tmp_path / "verdicts.json"
    place.write_text(
        json.dumps({"steps": 3, "cut": True, "verdicts": [{"check": "x", "state": "odd"}]})
    )

    from vinedresser.errors import LaunchError
    from vinedresser.preflight.launching import read_result

    with pytest.raises(LaunchError, match="not a verdict"):
        read_result(place)
    assert UNCHECKED not in (FINE, SUSPICIOUS)
