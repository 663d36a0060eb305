"""What cures a broken training is found on its recorded state, and nothing else is claimed."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.torch_.guard.trainings import BAD_STEP as ZERO_STEP
from tests.capture.torch_.guard.trainings import train as train_distances
from tests.replay.test_replay import again
from tests.replay.what_if.trainings import (
    SLOW_CLOCK,
    decayed,
    fast,
    gathering,
    halves,
    healthy,
    loss_inside,
    samples,
    slow,
    standing,
    train,
    unscaled,
    unscaled_batches,
)
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.objects import open_storage
from vinedresser.replay.stepping import Replayed, replay
from vinedresser.replay.what_if.results import WhatIf
from vinedresser.replay.what_if.trying import what_if
from vinedresser.snapshots.reading import list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

# More than any of these needs, so that the result does not depend on the load of the machine.
_SECONDS = 600.0


def replayed(run: Path, step: int, factory: str) -> Replayed:
    """Run a recorded step again."""
    place = run / "snapshots" / f"step-{step}"
    return replay(open_snapshot(place), f"tests.replay.what_if.trainings:{factory}")


def tried(run: Path, step: int, factory: str, steps: int = 60) -> WhatIf:
    """Try changes on a recorded state."""
    return what_if(replayed(run, step, factory), steps=steps, seconds=_SECONDS)


def overflowing(step: int, rows: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets [batch, 1], of which one of step 2 has too large an exponential for half."""
    wanted = rows[:, :1].clone()
    if step == 2:
        wanted[7] = 20.0
    return rows, wanted


@pytest.mark.thorough
def test_a_lower_learning_rate_cures_one_that_is_too_high(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", fast(), 1)
    found = tried(tmp_path / "run", 0, "fast")
    assert found.symptom.startswith("the loss rises") or "does not fall" in found.symptom
    cures = {cure.kind: cure for cure in found.cures}
    assert cures["learning rate"].change == "learning rate 0.2 instead of 2"
    # As the training itself with this rate, on the same batch.
    torch.manual_seed(0)
    model, loss_fn, optimizer = fast()
    optimizer.param_groups[0]["lr"] = 0.2
    losses = []
    for _ in range(60):
        rows, labels = samples(0)
        optimizer.zero_grad()
        loss = loss_fn(model(rows), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert cures["learning rate"].course.losses == pytest.approx(losses, rel=1e-3, abs=1e-5)
    (control,) = (trial for trial in found.trials if trial.control)
    assert not control.cures
    assert found.conclusion.startswith("learning rate 0.2 instead of 2")
    assert f"after 60 steps; unchanged: loss {found.unchanged.last:.4g})" in found.conclusion
    assert list(cures["learning rate"].values) == pytest.approx([2.0, 0.2])


@pytest.mark.slow
def test_single_precision_cures_an_overflow_in_half(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, loss_fn = halves()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    train(tmp_path / "run", (model, loss_fn, optimizer), 4, change=overflowing)
    found = tried(tmp_path / "run", 2, "halves", steps=20)
    assert found.symptom == "not finite at step 0"
    assert [cure.change for cure in found.cures] == ["float32 instead of float16"]
    # Changes of the update would come too late.
    assert {trial.kind for trial in found.trials} == {"precision", "labels shuffled"}
    told = again_with(tmp_path / "run", 2, "halves")
    assert "tried: float32 instead of float16 cures it (loss " in told
    assert "after 20 steps; unchanged: not finite at step 0)" in told
    assert "20 steps from here, the same batch each time" in told
    assert "not finite at step 0" in told


def again_with(run: Path, step: int, factory: str) -> str:
    """Run the command in another process; return what it prints."""
    reference = f"tests.replay.what_if.trainings:{factory}"
    return again(run, step, "", "--factory", reference, "--what-if", "--steps", "20")


@pytest.mark.thorough
def test_no_change_cures_the_derivative_of_a_norm_at_zero(tmp_path: Path) -> None:
    train_distances(tmp_path / "run")
    place = tmp_path / "run" / "snapshots" / f"step-{ZERO_STEP}"
    step = replay(open_snapshot(place), "tests.replay.stories:distances")
    found = what_if(step, steps=20, seconds=_SECONDS)
    assert found.cures == []
    assert found.conclusion == "none of 2 changes cures it"
    assert {trial.change for trial in found.trials} == {
        "float64 instead of float32",
        "no dropout",
        "labels shuffled",
        "other random numbers",
    }
    # The recorded state is there again, bit for bit.
    assert step.replay.run().gradients == step.outcome.gradients


@pytest.mark.thorough
def test_a_missing_zero_grad_is_tried(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, optimizer, _ = gathering()
    parts = model, nn.CrossEntropyLoss(), optimizer
    train(tmp_path / "run", parts, 11, every=10, clears=False)
    found = tried(tmp_path / "run", 10, "gathering")
    trial = next(one for one in found.trials if one.kind == "zero_grad")
    assert trial.cures
    assert trial.course.last < 0.1 * found.unchanged.last
    assert not any(one.cures for one in found.trials if one.control)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 3])
def test_nothing_is_claimed_of_a_healthy_step(tmp_path: Path, number: int) -> None:
    torch.manual_seed(number)
    train(tmp_path / "run", healthy(number), 1)
    found = tried(tmp_path / "run", 0, f"healthy_{number}", steps=100)
    assert found.cures == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_no_healthy_training_has_a_cure_at_any_time(tmp_path: Path, number: int) -> None:
    torch.manual_seed(number)
    train(tmp_path / "run", healthy(number), 301, every=100)
    records = list_snapshots(open_storage(tmp_path / "run"), [])
    assert [record.step for record in records] == [0, 100, 200, 300]
    for record in records:
        found = tried(tmp_path / "run", record.step, f"healthy_{number}", steps=100)
        assert found.cures == [], found.conclusion


def rates(found: WhatIf) -> set[float]:
    """Return the learning rates that were tried."""
    return {trial.values[1] for trial in found.trials if trial.kind == "learning rate"}


@pytest.mark.thorough
def test_a_far_higher_learning_rate_cures_a_training_that_stands_still(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", standing(), 1)
    found = tried(tmp_path / "run", 0, "standing_batches", steps=100)
    assert found.symptom == "the loss does not fall"
    assert [cure.kind for cure in found.cures] == ["learning rate"]
    # Rates with which a step moves the weights as far as usual.
    assert sorted(rates(found)) == pytest.approx([1e-4, 1e-3])
    # Of a single batch, the noise is not known.
    alone = tried(tmp_path / "run", 0, "standing", steps=100)
    assert alone.symptom == "the loss does not fall"
    assert max(rates(alone)) < 1e-7


@pytest.mark.thorough
def test_a_healthy_training_that_could_be_faster_has_no_cure(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", slow(), 1)
    found = tried(tmp_path / "run", 0, "slow_batches", steps=60)
    assert found.symptom.startswith("the loss falls only")
    assert found.cures == []
    # With ten times its rate, the loss falls by far more.
    torch.manual_seed(0)
    model, loss_fn, optimizer = slow()
    optimizer.param_groups[0]["lr"] *= 10
    losses = []
    for step in range(60):
        rows, labels = samples(step)
        optimizer.zero_grad()
        loss = loss_fn(model(rows), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sorted(losses[-6:])[3] < 0.5 * found.unchanged.last


@pytest.mark.thorough
def test_a_weight_decay_that_is_too_high_is_cured_without_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", decayed(), 1)
    found = tried(tmp_path / "run", 0, "decayed", steps=100)
    (cure,) = found.cures
    assert cure.change == "no weight decay instead of 1"
    assert cure.values == (1.0, 0.0)


@pytest.mark.thorough
def test_a_loss_that_falls_no_lower_than_with_shuffled_labels_is_a_symptom(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", unscaled_batches()[:3], 1, change=unscaled)
    found = tried(tmp_path / "run", 0, "unscaled_batches", steps=100)
    # It falls far, but only to the level of four classes without their inputs.
    assert found.unchanged.last < 0.1 * found.before
    assert found.unchanged.last == pytest.approx(math.log(4), rel=0.1)
    assert found.symptom.endswith("no lower than with shuffled labels")
    assert "inputs" in {cure.kind for cure in found.cures}
    (control,) = (trial for trial in found.trials if trial.control)
    assert control.course is found.shuffled


@pytest.mark.thorough
def test_labels_that_go_through_the_model_are_no_baseline(tmp_path: Path) -> None:
    # Shuffled together with the inputs, they say nothing.
    torch.manual_seed(0)
    model, optimizer, _ = loss_inside()
    hook = Hook(tmp_path / "run", snapshots=SnapshotSettings(every=1))
    hook.watch(model, optimizer=optimizer)
    model(*samples(0)).backward()
    optimizer.step()
    hook.close()
    found = tried(tmp_path / "run", 0, "loss_inside", steps=40)
    assert found.batches == 40
    assert found.shuffled is None
    assert found.symptom == ""


@pytest.mark.thorough
def test_more_batches_come_from_the_factory(tmp_path: Path) -> None:
    torch.manual_seed(2)
    train(tmp_path / "run", healthy(2), 1)
    found = tried(tmp_path / "run", 0, "more_batches", steps=50)
    assert found.batches == 6
    # The loss before is that of the last batches, with the recorded weights.
    torch.manual_seed(2)
    model, loss_fn, _ = healthy(2)
    batches = [samples(0), *(samples(step) for step in range(100, 105))]
    last = [loss_fn(model(rows), labels).item() for rows, labels in (batches * 9)[45:50]]
    assert found.before == pytest.approx(sorted(last)[2], rel=1e-4)


@pytest.mark.thorough
def test_without_time_nothing_is_claimed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", fast(), 1)
    found = what_if(replayed(tmp_path / "run", 0, "fast"), steps=10, seconds=0.0)
    assert found.conclusion == "nothing was tried: there was no time for 10 steps"


@pytest.mark.thorough
def test_a_control_that_is_not_completed_prevents_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", fast(), 1)
    step = replayed(tmp_path / "run", 0, "slow_changes")
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: SLOW_CLOCK[0])
        found = what_if(step, steps=20, seconds=230.0)
    assert found.controls_left == ["labels shuffled"]
    assert "labels shuffled" in found.not_tried
    assert [trial.kind for trial in found.trials if trial.cures] == ["learning rate"]
    assert found.cures == []
    assert found.conclusion == "nothing follows: labels shuffled, a control, was not completed"
    assert [found.verdict(trial) for trial in found.trials] == ["better, no proof", "-"]


@pytest.mark.thorough
def test_a_control_that_fails_prevents_a_claim(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train(tmp_path / "run", fast(), 1)
    found = tried(tmp_path / "run", 0, "only_in_order", steps=20)
    assert any(trial.cures for trial in found.trials)
    assert found.controls_left == ["labels shuffled"]
    assert found.cures == []


@pytest.mark.thorough
def test_an_unknown_optimizer_is_asked_for(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, loss_fn = halves()
    optimizer = torch.optim.SGD(
        [{"params": [parameter]} for parameter in model.parameters()], lr=1e-6
    )
    train(tmp_path / "run", (model, loss_fn, optimizer), 3, change=overflowing)
    with pytest.raises(ConfigError, match="the factory must return the optimizer, after the model"):
        tried(tmp_path / "run", 2, "halves")
