"""The guard sees the gradients of a Lightning training, which a closure computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vinedresser.capture import Hook
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.objects import LocalStorage
from vinedresser.replay.stepping import bisect, replay
from vinedresser.snapshots.reading import list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

pytestmark = pytest.mark.filterwarnings("ignore")

# Batches of 8; the 38th sample is in the fifth.
BAD, BATCH = 37, 8


class Lengths(lightning.LightningModule):
    """Learns short vectors; the derivative of a length of zero is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors [batch, 3] of rows [batch, 4]."""
        return torch.as_tensor(self.head(rows))

    def training_step(self, batch: Any, _: int) -> Tensor:
        """Return the mean length."""
        rows, weights = batch
        return torch.as_tensor(((self(rows) * weights) ** 2).sum(1).sqrt().mean())

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters())


class ByHand(Lengths):
    """Calls its optimizer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> Tensor:
        """Minimize the mean length, and return it."""
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, number)
        self.manual_backward(loss)
        optimizer.step()
        return loss


def again() -> Any:
    """Build the model and its step for a replay."""
    model = Lengths()

    def step(batch: Any) -> Tensor:
        loss = model.training_step(batch.loaded, 0)
        loss.backward()
        return loss

    return model, step


def train(
    run: Path | None, *, stop: bool = False, kind: type[Lengths] = Lengths, **options: Any
) -> list[bytes]:
    """Train; return the bits of the weights."""
    torch.manual_seed(0)
    model = kind()
    weights = torch.ones(64, 3)
    weights[BAD] = 0
    data = DataLoader(TensorDataset(torch.randn(64, 4), weights), batch_size=BATCH)
    hook = (
        None if run is None else Hook(run, guard="nonfinite", snapshots=SnapshotSettings(stop=stop))
    )
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[] if hook is None else [hook.lightning()],
        **options,
    )
    try:
        trainer.fit(model, data)
    finally:
        if hook is not None:
            hook.close()
            assert hook.problems == []
            assert not stop or all(
                np.isfinite(parameter.detach()).all() for parameter in model.parameters()
            )
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


@pytest.mark.parametrize("kind", [Lengths, ByHand])
def test_a_step_is_found_and_runs_again(kind: Any, tmp_path: Path) -> None:
    assert train(tmp_path / "run", kind=kind) == train(None, kind=kind)
    replayed = replay(open_snapshot(tmp_path / "run" / "snapshots" / "step-4"), f"{__name__}:again")
    assert replayed.comparison.exact
    assert replayed.comparison.losses
    samples = bisect(replayed)
    assert samples is not None
    assert samples.found.samples == [(0, BAD % BATCH)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "step"),
    [({"accumulate_grad_batches": 2}, 2), ({"precision": "bf16-mixed"}, 4)],
)
def test_with_accumulation_and_mixed_precision(
    options: dict[str, Any], step: int, tmp_path: Path
) -> None:
    assert train(tmp_path / "run", **options) == train(None, **options)
    (record,) = list_snapshots(LocalStorage(tmp_path / "run"), [])
    assert (record.step, record.left_out) == (step, {})


def test_a_stop_comes_before_the_update(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(tmp_path / "run", stop=True)
