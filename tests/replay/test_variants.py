"""A recorded step runs in another precision, in parts, and without compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.capture.torch_.guard.trainings import BAD_ROW as ZERO_ROW
from tests.capture.torch_.guard.trainings import BAD_STEP as ZERO_STEP
from tests.capture.torch_.guard.trainings import train
from tests.replay.stories import BAD_ROW, BAD_STEP, Doubled, train_compiled, train_half
from tests.replay.test_replay import again
from tests.replay.what_if.trainings import healthy
from tests.replay.what_if.trainings import train as train_rows
from vinedresser.errors import ConfigError
from vinedresser.replay.batch import Batch
from vinedresser.replay.splitting import run_split
from vinedresser.replay.stepping import locate, prepared, replay
from vinedresser.replay.what_if.precision import cast_batch
from vinedresser.replay.wider import run_wider
from vinedresser.snapshots.reading import Snapshot, open_snapshot


class Pair(NamedTuple):
    """A batch of a script."""

    rows: Tensor
    others: list[Tensor]


def snapshot(run: Path, step: int) -> Snapshot:
    """Open the snapshot of a step."""
    return open_snapshot(run / "snapshots" / f"step-{step}")


def test_a_batch_in_another_precision_keeps_its_types() -> None:
    own = Pair(torch.ones(2), [torch.ones(1, dtype=torch.int64)])
    found = cast_batch(Batch((), {}, (), own), torch.float64).loaded
    assert type(found) is Pair
    assert (found.rows.dtype, found.others[0].dtype) == (torch.float64, torch.int64)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_overflow_in_half_precision_is_its_fault(tmp_path: Path, dtype: str) -> None:
    train_half(tmp_path / "run")
    step = replay(snapshot(tmp_path / "run", BAD_STEP), "tests.replay.stories:half")
    found = run_wider(step, dtype)
    # exp(300) is 2e130: too large for float32 as well.
    assert found.outcome.broken is (dtype == "float32")
    words = "precision is the cause" if dtype == "float64" else "precision is not the cause"
    assert found.words.endswith(words)
    # The recorded state is there again, bit for bit.
    assert step.replay.run().gradients == step.outcome.gradients


@pytest.mark.thorough
def test_the_derivative_of_a_norm_at_zero_is_not_a_fault_of_precision(tmp_path: Path) -> None:
    train(tmp_path / "run")
    step = replay(snapshot(tmp_path / "run", ZERO_STEP), "tests.replay.stories:distances")
    found = run_wider(step, "float64")
    assert found.words == "not finite, either: precision is not the cause"
    assert found.outcome.nonfinite.keys() == step.outcome.nonfinite.keys()


@pytest.mark.thorough
def test_the_loss_in_float64_is_that_of_a_model_in_float64(tmp_path: Path) -> None:
    torch.manual_seed(0)
    train_rows(tmp_path / "run", healthy(0), 1)
    step = replay(snapshot(tmp_path / "run", 0), "tests.replay.what_if.trainings:healthy_0")
    found = run_wider(step, "float64")
    torch.manual_seed(0)
    model, loss_fn, _ = healthy(0)
    (batch,) = step.replay.step.batches
    expected = loss_fn(model.double()(batch.args[0].double()), batch.loss_args[1])
    (loss,) = found.outcome.losses
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert found.words == "all gradients are finite, as before"


@pytest.mark.thorough
@pytest.mark.parametrize("number", [2, 3, 100])
def test_parts_have_the_loss_of_the_whole(tmp_path: Path, number: int) -> None:
    train_half(tmp_path / "run")
    step = prepared(snapshot(tmp_path / "run", BAD_STEP), "tests.replay.stories:half")
    found = run_split(step, number)
    assert found.same
    assert found.inexact == []
    sizes = [part.size for part in found.parts]
    assert sum(sizes) == 64
    assert len(sizes) == min(number, 64)
    assert max(sizes) - min(sizes) <= 1
    # The part with the sample that breaks the step, and no other.
    (bad,) = (part for part in found.parts if part.nonfinite)
    assert bad.first <= BAD_ROW <= bad.last


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("reduction", "factor", "same"), [("mean", 1, True), ("sum", 1, True), ("mean", 7, False)]
)
def test_the_loss_in_parts_is_compared(
    tmp_path: Path, reduction: str, factor: int, same: bool
) -> None:
    torch.manual_seed(0)
    train_rows(tmp_path / "run", healthy_linear(), 1)
    step = prepared(snapshot(tmp_path / "run", 0), "tests.replay.test_variants:healthy_linear")
    step.parts.loss = nn.CrossEntropyLoss(reduction=reduction)
    whole = step.run().losses[0]
    step.step.losses[:] = [[whole * factor]]
    assert run_split(step, 5).same is same


def healthy_linear() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Build a linear classifier, of which a part of a batch computes the same."""
    model = nn.Linear(12, 4)
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.thorough
def test_batch_normalization_makes_parts_inexact(tmp_path: Path) -> None:
    train(tmp_path / "run")
    step = prepared(snapshot(tmp_path / "run", ZERO_STEP), "tests.replay.stories:distances")
    found = run_split(step, 4)
    assert "batch normalization computes other statistics" in found.inexact
    (bad,) = (part for part in found.parts if part.nonfinite)
    assert bad.first <= ZERO_ROW <= bad.last


@pytest.mark.thorough
def test_compiled_code_has_a_line_if_it_runs_eagerly(tmp_path: Path) -> None:
    train_compiled(tmp_path / "run")
    opened = snapshot(tmp_path / "run", 0)
    step = replay(opened, "tests.replay.stories:compiled", eager=True)
    assert step.outcome.broken
    found, _ = locate(step)
    assert found is not None
    assert "rows.square().sum(1).sqrt()" in found.place.text
    assert Doubled.__name__ in found.place.module or found.place.file.endswith("stories.py")


@pytest.mark.slow
def test_the_command_says_what_follows(tmp_path: Path) -> None:
    train_half(tmp_path / "run")
    told = again(tmp_path / "run", BAD_STEP, "half", "--dtype", "float64")
    assert "in float64: loss " in told
    assert "all gradients are finite: precision is the cause" in told
    told = again(tmp_path / "run", BAD_STEP, "half", "--split", "4")
    assert "4 parts: the loss is the same but for rounding" in told
    assert "not finite with samples 0 to 15: " in told
    told = again(tmp_path / "run", BAD_STEP, "half", "--split", "4", "--locate", code=2)
    assert "--locate: not with --split" in told


@pytest.mark.thorough
def test_samples_that_cannot_be_told_apart_have_no_parts(tmp_path: Path) -> None:
    train_half(tmp_path / "run")
    step = prepared(snapshot(tmp_path / "run", BAD_STEP), "tests.replay.stories:half")
    (batch,) = step.step.batches
    step.step.batches[:] = [type(batch)((1.0,), {}, batch.loss_args, None)]
    with pytest.raises(ConfigError, match="cannot be told apart"):
        run_split(step, 2)
