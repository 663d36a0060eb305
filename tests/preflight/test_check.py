"""Pre-flight checks of real scripts: each fault is found by its check, and no other is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.preflight.trainings import LIGHTNING, USUAL, script
from vinedresser.preflight.launching import Preflight, check_script
from vinedresser.preflight.names import CHECKS
from vinedresser.preflight.verdict import FINE, SUSPICIOUS, UNCHECKED

# Those that train copies take seconds.
STEP = "loss = loss_fn({}, wanted); loss.backward()"
# A binary cross entropy for ten classes.
BY_HAND = (
    "chance, wide = model(rows)[:, 0].sigmoid(), wanted.float(); "
    "loss = -(wide * chance.log() + (1 - wide) * (1 - chance).log()).mean(); loss.backward()"
)
FIXED = f"rows, wanted = fixed; {STEP.format('model(rows)')}"
SLOW = ("overfit", "learning_rate", "scales")


def checked(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    skip: tuple[str, ...] = SLOW,
    steps: int = 8,
) -> Preflight:
    """Check a script."""
    (directory / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(directory)
    return check_script(["train.py"], steps=steps, seconds=30, timeout=100, skip=skip)


def suspicions(found: Preflight) -> set[str]:
    """Return the names of the suspicious checks."""
    assert found.verdicts, found.output
    return {one.check for one in found.verdicts if one.state == SUSPICIOUS}


@pytest.mark.thorough
def test_a_healthy_training_is_fine_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, script())

    states = {one.check: one.state for one in found.verdicts}
    assert states == dict.fromkeys([name for name in CHECKS if name not in SLOW], FINE)
    assert (found.steps, found.code) == (8, 0)
    # Its finally block has run, and there are no files but its own.
    assert sorted(os.listdir(tmp_path)) == ["ended", "train.py"]


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

    states = {one.check: one.state for one in found.verdicts}
    assert states == dict.fromkeys([name for name in CHECKS if name not in SLOW], FINE)
    assert sorted(os.listdir(tmp_path)) == ["ended", "train.py"]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_nor_does_its_callback_of_lightning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []
    for callbacks in ("", "from vinedresser import Hook; callbacks = [Hook('run').lightning()]"):
        found = checked(tmp_path, monkeypatch, LIGHTNING.replace("{callbacks}", callbacks))
        states.append({one.check: one.state for one in found.verdicts})
    assert states[0] == states[1]
    assert states[1]["loss_arguments"] == states[1]["own_input"] == FINE
    assert os.listdir(tmp_path) == ["train.py"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("clearing", {"clear": "pass"}),
        ("gradients", {"forward": "hidden = torch.tensor(hidden.detach().numpy())"}),
        ("gradients", {"step": STEP.format("model(rows) * 0")}),
        ("loss_arguments", {"step": STEP.format("model(rows).softmax(1)")}),
        ("first_loss", {"step": STEP.format("50 * model(rows)")}),
        ("batches", {"before": "labels.zero_()"}),
        ("batches", {"before": "fixed = next(iter(loader))", "step": FIXED}),
        ("modes", {"before": "model.eval()"}),
        ("other_samples", {"forward": "hidden = hidden.softmax(0)"}),
        ("own_input", {"forward": "hidden = 0 * hidden"}),
        ("finite", {"step": STEP.format("model(rows / 0)")}),
        ("gradients", {"before": "optimizer.step = lambda: None; range = lambda _: [0]"}),
        ("units", {"before": "[one.data.fill_(0.1) for one in model.parameters()]"}),
        ("own_input", {"forward": "for _ in range(5): hidden = (hidden / 2).sigmoid()"}),
        ("loss_arguments", {"step": BY_HAND}),
    ],
)  # fmt: skip
def test_a_fault_is_found_by_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, changes: dict[str, str]
) -> None:
    found = checked(tmp_path, monkeypatch, script(**changes))

    assert check in suspicions(found), found.verdicts


@pytest.mark.slow
def test_outputs_that_are_not_finite_say_nothing_about_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, script(step=STEP.format("model(rows / 0)")))

    states = {one.check: one.state for one in found.verdicts}
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
                "before": "rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n < 2)",
                "clear": "optimizer.zero_grad(); rates.step()",
            },
            {"learning_rate"},
        ),
        (
            {
                "optimizer": "Adam(model.parameters())",
                "step": "target = 1e6 + 1e4 * nn.functional.one_hot(wanted, 10); "
                "loss = (model(rows) - target).square().mean(); loss.backward()",
            },
            {"scales"},
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
@pytest.mark.parametrize(
    "changes",
    [
        # A closure, a clipped gradient, a frozen layer, a warm-up, a loss by hand.
        {
            "optimizer": "LBFGS(model.parameters(), max_iter=3)",
            "before": "def closure():\n    optimizer.zero_grad()\n"
            "    value = loss_fn(model(images), labels)\n    value.backward()\n    return value\n",
            "step": "loss = optimizer.step(closure); break",
        },
        {
            "step": "loss = loss_fn(model(rows), wanted); loss.backward(); "
            "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
        },
        {"before": "model.first.requires_grad_(False)"},
        {
            "before": "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n / 1000)",
            "clear": "optimizer.zero_grad(); schedule.step()",
        },
        {
            "step": "wide = nn.functional.one_hot(wanted, 10); loss = -(model(rows).log_softmax(1)"
            " * wide).sum(1).mean() + 1e-4 * model.last.weight.square().sum(); loss.backward()"
        },
    ],
    ids=["closure", "clipped", "frozen", "warm-up", "by hand"],
)
def test_unusual_healthy_trainings_are_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    found = checked(tmp_path, monkeypatch, script(**changes), skip=())

    assert not suspicions(found), found.verdicts


@pytest.mark.slow
def test_watched_steps_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(tmp_path, monkeypatch, script())
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert found.code == 0, found
    # The step that ends it does not print.
    assert found.output.splitlines() == alone.stdout.splitlines()[:7]


@pytest.mark.slow
def test_a_script_that_fails_or_trains_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("import torch; print('here')", encoding="utf-8")
    (tmp_path / "fails.py").write_text("import torch; 1 / 0", encoding="utf-8")

    nothing = vinedresser("check", "nothing.py", cwd=tmp_path)
    fails = vinedresser("check", "fails.py", cwd=tmp_path)

    assert nothing.returncode == fails.returncode == 1
    assert "no training of PyTorch was seen" in nothing.stdout
    assert "exit code 1" in fails.stdout
    assert "ZeroDivisionError" in fails.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--skip", "overfitt", "train.py"), "--skip: no check 'overfitt'; did you mean overfit?"),
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
    place.write_text(json.dumps({"steps": 3, "verdicts": [{"check": "x", "state": "odd"}]}))

    from vinedresser.errors import LaunchError
    from vinedresser.preflight.launching import read_result

    with pytest.raises(LaunchError, match="not a verdict"):
        read_result(place)
    assert UNCHECKED not in (FINE, SUSPICIOUS)
