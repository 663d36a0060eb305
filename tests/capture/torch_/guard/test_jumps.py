"""A step whose loss jumps has a snapshot, whose replay tells whether the jump lasts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.capture.torch_.guard.jumping_training import JUMP, again, train
from tests.capture.torch_.parallel.ranks import run_ranks
from vinedresser.capture import Hook, SnapshotSettings, open_run
from vinedresser.capture.recording.loss_jumps import LossJumps
from vinedresser.objects import LocalStorage
from vinedresser.replay.lasting import conclusion, run_again
from vinedresser.replay.stepping import replay
from vinedresser.snapshots.reading import list_snapshots, open_snapshot

TRAINING = "tests.capture.torch_.guard.jumping_training"
SAID = {
    "batch": "has that loss again: the data, the weights or the code",
    "machine": "in the training: a transient error, or its machine",
}


def concluded(run: Path, name: str) -> str:
    """Return whether the jump of a snapshot lasts."""
    opened = open_snapshot(run / "snapshots" / name)
    again = partial(replay, factory=f"{TRAINING}:again")
    world = opened.record.world_size
    return conclusion(run_again(opened, again(opened), again), world, opened.record.reason)


@pytest.mark.parametrize("story", SAID)
def test_what_a_batch_does_lasts_and_what_a_machine_does_does_not(
    story: str, tmp_path: Path
) -> None:
    train(tmp_path / "run", story)
    (finding,) = open_run(tmp_path / "run").findings()
    assert (finding.rule, finding.severity, finding.step) == ("loss_jump", "info", JUMP)
    assert "jumped at step 30: it is" in finding.seen
    assert f"vinedresser replay {tmp_path}/run/snapshots/step-{JUMP}" in finding.remedy
    (record,) = list_snapshots(LocalStorage(tmp_path / "run"), [])
    assert (record.step, record.reason) == (JUMP, "jump")
    said = concluded(tmp_path / "run", record.name)
    assert SAID[story] in said
    assert said.startswith("lasting: " if story == "batch" else "not lasting: ")


def test_a_usual_training_has_neither_snapshot_nor_finding(tmp_path: Path) -> None:
    train(tmp_path / "run", "none")
    assert open_run(tmp_path / "run").findings() == []
    assert list_snapshots(LocalStorage(tmp_path / "run"), []) == []


class _Unreadable(Tensor):
    """A loss whose value cannot be read, as one that a CUDA graph has overwritten."""

    def __float__(self) -> float:
        raise RuntimeError("it is gone")


class _UnreadableLoss(nn.MSELoss):
    def forward(self, found: Tensor, wanted: Tensor) -> Tensor:
        return super().forward(found, wanted).as_subclass(_Unreadable)


def test_a_loss_that_cannot_be_read_does_not_prevent_periodic_snapshots(tmp_path: Path) -> None:
    model, _, optimizer = again()
    loss_fn, kept = _UnreadableLoss(), SnapshotSettings(every=1, keep=9)
    hook = Hook(tmp_path / "run", guard="nonfinite", snapshots=kept)
    with hook.watch(model, loss=loss_fn, optimizer=optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss_fn(model(torch.ones(4, 5)), torch.ones(4, 1)).backward()
            optimizer.step()
    assert [one.step for one in list_snapshots(LocalStorage(tmp_path / "run"), [])] == [0, 1, 2]
    assert any("comparing losses: RuntimeError: it is gone" in one for one in hook.problems)


def test_a_loss_of_each_sample_is_not_compared(tmp_path: Path) -> None:
    model, _, optimizer = again()
    loss_fn = nn.MSELoss(reduction="none")
    hook = Hook(tmp_path / "run", snapshots=SnapshotSettings(every=1))
    with hook.watch(model, loss=loss_fn, optimizer=optimizer):
        loss_fn(model(torch.ones(4, 5)), torch.ones(4, 1)).mean().backward()
        optimizer.step()
    opened = open_snapshot(tmp_path / "run" / "snapshots" / "step-0")
    run = partial(replay, factory=f"{TRAINING}:again_by_function")
    (found,) = run_again(opened, run(opened), run)
    assert found.close is None
    assert found.losses[1] == ""


@pytest.mark.thorough
@pytest.mark.parametrize("story", SAID)
def test_of_two_ranks_the_one_whose_loss_jumped_is_named(story: str, tmp_path: Path) -> None:
    run_ranks(TRAINING, tmp_path, story)
    run = tmp_path / "run"
    (finding,) = open_run(run).findings()
    assert (finding.rule, finding.rank, finding.step) == ("loss_jump", 1, JUMP)
    (record,) = list_snapshots(LocalStorage(run), [])
    assert record.rank == 1
    said = concluded(run, record.name)
    assert "the same batch of rank 1" in said
    assert SAID[story] in said


def jumps(losses: list[float]) -> list[int]:
    """Return the steps at which a loss jumps."""
    compared = LossJumps()
    return [step for step, loss in enumerate(losses) if compared.next([("losses/a", loss)])]


def test_noise_descent_divergence_and_bad_numbers_are_not_jumps() -> None:
    random = np.random.default_rng(0)
    for losses in (
        random.lognormal(0, 1, 5000),
        np.exp(-np.arange(500) / 50) * random.uniform(0.5, 1.5, 500),
        1.3 ** np.arange(200),
        # A plateau, and a small rise.
        0.6931 + 1e-7 * random.uniform(size=200) + 0.01 * (np.arange(200) >= 100),
        np.concatenate([np.ones(100), np.full(5, np.nan), np.full(5, np.inf), np.full(100, 2.0)]),
    ):
        assert jumps(list(losses)) == []


def test_a_jump_is_reported_once_and_only_after_enough_steps() -> None:
    usual = list(np.random.default_rng(0).uniform(0.9, 1.1, 60))
    assert jumps([*usual, 50.0, *usual, *usual]) == [60]
    assert jumps([*usual, *[50.0] * 100]) == [60]
    assert jumps([*usual[:10], 50.0, *usual]) == []


def test_several_losses_of_a_step_count_as_their_mean() -> None:
    compared = LossJumps()
    for loss in np.random.default_rng(0).uniform(0.9, 1.1, 60):
        assert compared.next([("losses/a", loss), ("losses/a", 1.0), ("losses/b", 9.0)]) is None
    jump = compared.next([("losses/a", 1.0), ("losses/a", 21.0), ("losses/b", 9.0)])
    assert jump is not None
    assert (jump.name, jump.value, jump.steps) == ("losses/a", 11.0, 50)
