"""Snapshots of several ranks, and on an object store."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.capture.torch_.guard.trainings import BAD_ROW, BAD_STEP, train
from tests.capture.torch_.parallel.ranks import run_ranks
from tests.replay.stories import BAD_ROW as HALF_ROW
from tests.replay.stories import BAD_STEP as HALF_STEP
from vinedresser.capture import open_run
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.replay.lasting import conclusion, run_again
from vinedresser.replay.stepping import bisect, locate, replay
from vinedresser.snapshots.reading import list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("story", "step", "row", "line"),
    [
        ("distances", BAD_STEP, BAD_ROW, ".sum(1).sqrt().mean()"),
        ("half", HALF_STEP, HALF_ROW, "(wanted - found).half().exp()"),
    ],
)
def test_every_rank_keeps_the_same_step_and_its_own_batch(
    tmp_path: Path, story: str, step: int, row: int, line: str
) -> None:
    run_ranks("tests.capture.torch_.guard.ddp_training", tmp_path, story)
    run = tmp_path / "run"
    found = list_snapshots(LocalStorage(run), [])
    # Later ones would have non-finite weights.
    assert [(one.step, one.rank) for one in found] == [(step, 0), (step, 1)]
    assert all(one.world_size == 2 for one in found)
    assert len(open_run(run).findings()) == 1
    # The sample is in the batch of one rank.
    broken = []
    for record in found:
        replayed = replay(
            open_snapshot(run / "snapshots" / record.name), f"tests.replay.stories:{story}"
        )
        assert replayed.comparison.losses
        assert record.inexact == [
            "the gradients are means over all ranks, which one rank cannot reproduce"
        ]
        parameters = replayed.replay.step.models[""].parameters.values()
        assert all(torch.isfinite(parameter).all() for parameter in parameters)
        broken.append(replayed.outcome.broken)
        if replayed.outcome.broken:
            samples = bisect(replayed)
            assert samples is not None
            assert samples.found.samples == [(0, row)]
            located, _ = locate(replayed)
            assert located is not None
            assert line in located.place.text
    assert broken == [False, True]
    assert lasting(run, story, step) == (
        "lasting: the same batch of rank 1 breaks the step again: the data or the code"
    )
    # Without the snapshot of rank 1, nothing is claimed.
    shutil.rmtree(run / f"snapshots/step-{step}-rank1")
    assert lasting(run, story, step).endswith("1 of 2 ranks have a snapshot")


def lasting(run: Path, factory: str, step: int) -> str:
    """Return whether what broke a step lasts."""
    again = partial(replay, factory=f"tests.replay.stories:{factory}")
    opened = open_snapshot(run / f"snapshots/step-{step}")
    return conclusion(run_again(opened, again(opened), again), 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("story", "said"),
    [
        ("forward", "rank 1 alone had another loss in the training: its machine"),
        ("backward", "with the same batch and weights on all ranks: a transient error"),
    ],
)
def test_what_a_machine_has_done_does_not_last(tmp_path: Path, story: str, said: str) -> None:
    run_ranks("tests.capture.torch_.guard.ddp_training", tmp_path, story)
    assert said in lasting(tmp_path / "run", "half", HALF_STEP)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("story", "said"),
    [
        ("half", "lasting: the same batch of rank 1 breaks the step again: the data or the code"),
        ("forward", "not lasting: the step is finite here, and rank 1 alone had another loss in"),
    ],
)
def test_shards_of_all_ranks_are_replayed_as_one_model(
    tmp_path: Path, story: str, said: str
) -> None:
    run = tmp_path / "run"
    run_ranks("tests.capture.torch_.guard.ddp_training", tmp_path, story, "sharded")
    found = list_snapshots(LocalStorage(run), [])
    # The bad sample of one rank reaches the shards of both.
    assert [(one.step, one.rank) for one in found] == [(HALF_STEP, 0), (HALF_STEP, 1)]
    assert all(one.left_out == {} for one in found)
    (finding,) = open_run(run).findings()
    assert (finding.rule, finding.step) == ("nonfinite_gradient", HALF_STEP)
    first = open_snapshot(run / f"snapshots/step-{HALF_STEP}")
    replayed = replay(first, "tests.replay.stories:half")
    # Bit for bit that of the training, as are the weights.
    assert replayed.comparison.losses
    [optimizer] = replayed.step.models[""].optimizers
    weights = replayed.step.models[""].parameters.values()
    assert [one["exp_avg"].shape for one in optimizer["state"]["state"].values()] == [
        one.shape for one in weights
    ]
    assert said in lasting(run, "half", HALF_STEP)
    shutil.rmtree(run / f"snapshots/step-{HALF_STEP}-rank1")
    first = open_snapshot(first.location)
    with pytest.raises(ConfigError, match=r"and rank 1 kept no snapshot of step \d+"):
        replay(first, "tests.replay.stories:half")


@pytest.mark.thorough
def test_on_an_object_store_it_is_the_same(s3: str, tmp_path: Path) -> None:
    settings = SnapshotSettings(every=2, keep=1)
    train(tmp_path / "run", snapshots=settings)
    train(f"{s3}/run", snapshots=settings)
    here = list_snapshots(LocalStorage(tmp_path / "run"), [])
    faults: list[str] = []
    there = list_snapshots(open_storage(f"{s3}/run"), faults)
    assert faults == []
    assert [(one.step, one.reason) for one in there] == [(one.step, one.reason) for one in here]
    replayed = replay(
        open_snapshot(f"{s3}/run/snapshots/step-{BAD_STEP}"), "tests.replay.stories:distances"
    )
    assert replayed.comparison.exact
    assert all(
        torch.isfinite(parameter).all()
        for parameter in replayed.replay.step.models[""].parameters.values()
    )
