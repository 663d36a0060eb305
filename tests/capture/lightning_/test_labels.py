"""Inputs, labels and predictions of Lightning modules whose steps compute their loss."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.utils.data import DataLoader, TensorDataset

from tests.capture.lightning_.trainings import trainer
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.rules.base import Rule
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.reading.reader import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]

ROWS, FEATURES, CLASSES, BATCH = 2048, 20, 5, 64
KINDS = ("labels", "predictions", "losses", "model_inputs", "model_outputs")


@dataclass
class Batch:
    """What a step has seen: a batch, the outputs of the model, and the loss."""

    x: Tensor
    y: Tensor
    outputs: Tensor
    loss: Tensor


@dataclass
class Data:
    """Rows x [rows, features] and classes y [rows]; the last quarter is for validation."""

    x: Tensor
    y: Tensor


class Net(LightningModule):
    """A classifier whose steps call its own forward or its network."""

    def __init__(self, features: int, *, own_forward: bool, by_hand: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self.own_forward, self.by_hand = own_forward, by_hand
        self.seen: dict[str, list[Batch]] = {"train": [], "eval": []}

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.flatten(1))
        return out

    def _loss(self, batch: tuple[Tensor, Tensor], mode: str) -> Tensor:
        x, y = batch
        outputs: Tensor = self(x) if self.own_forward else self.net(x)
        if self.by_hand:
            loss = ((outputs - F.one_hot(y, CLASSES).float()) ** 2).mean()
        else:
            loss = F.cross_entropy(outputs, y)
        self.seen[mode].append(Batch(x, y, outputs.detach().clone(), loss.detach().clone()))
        return loss

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self._loss(batch, "train")

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch, "eval"))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Manual(Net):
    """A classifier that calls its optimizer itself."""

    def __init__(self, features: int, *, own_forward: bool) -> None:
        super().__init__(features, own_forward=own_forward)
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = self._loss(batch, "train")
        if batch_idx % 2:
            self.manual_backward(loss)
        else:
            # What the documentation advises against, but a module without precision plugins can.
            loss.backward()
        optimizer.step()


def learnable() -> Data:
    """Return rows whose classes a linear model can tell."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    return Data(x, (x @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1))


def fit(
    tmp_path: Path, module: Net, data: Data, kinds: tuple[str, ...] | None = KINDS, epochs: int = 1
) -> Run | None:
    """Fit a module; with kinds of tensors, return the run of a hook that captures them."""
    count = 3 * ROWS // 4
    loaders: list[Any] = [
        DataLoader(TensorDataset(data.x[rows], data.y[rows]), BATCH)
        for rows in (slice(count), slice(count, None))
    ]
    arguments: dict[str, Any] = {"max_epochs": epochs, "num_sanity_val_steps": 0}
    if kinds is None:
        trainer(tmp_path, **arguments).fit(module, *loaders)
        return None
    with Hook(tmp_path / "run", collections=dict.fromkeys(kinds, SaveConfig(every=1))) as hook:
        trainer(tmp_path, hook.lightning(), **arguments).fit(module, *loaders)
    assert hook.problems == []
    return open_run(tmp_path / "run")


def saved(module: nn.Module) -> bytes:
    """Return what `torch.save` writes of a module's state."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    return file.getvalue()


@pytest.mark.thorough
@pytest.mark.parametrize("own_forward", [True, False], ids=["forward", "part"])
@pytest.mark.parametrize("kind", [Net, Manual])
def test_labels_predictions_and_inputs_are_those_of_the_model(
    kind: Any, own_forward: bool, tmp_path: Path
) -> None:
    plain, module = (kind(FEATURES, own_forward=own_forward) for _ in range(2))
    fit(tmp_path, plain, learnable(), None)
    run = fit(tmp_path, module, learnable())
    assert run is not None
    assert saved(module) == saved(plain)
    name = kind.__name__
    assert run.tensor_names("inputs") == [f"inputs/{name}"]
    assert run.scalar_names("losses") == ["losses/loss"]
    losses = run.scalars("losses", mode="train")["losses/loss"].values.tolist()
    assert losses == pytest.approx([float(seen.loss) for seen in module.seen["train"]])
    for step, seen in enumerate(module.seen["train"]):
        np.testing.assert_array_equal(run.tensor(f"inputs/{name}").value(step), seen.x)
        np.testing.assert_array_equal(run.tensor(f"outputs/{name}").value(step), seen.outputs)
        np.testing.assert_array_equal(run.tensor("labels/loss").value(step), seen.y)
        logarithms = seen.outputs.log_softmax(1)
        np.testing.assert_allclose(
            run.tensor("predictions/loss").value(step), logarithms, atol=1e-6
        )


@pytest.mark.parametrize("kind", [Net, Manual])
def test_an_evaluation_that_only_logs_has_loss_labels_and_predictions(
    kind: Any, tmp_path: Path
) -> None:
    module = kind(FEATURES, own_forward=True)
    run = fit(tmp_path, module, learnable())
    assert run is not None
    seen = module.seen["eval"]
    losses = run.scalars("losses", mode="eval")["losses/loss"]
    expected = torch.stack([one.loss for one in seen]).mean().item()
    assert losses.values.tolist() == pytest.approx([expected], rel=1e-6)
    (step,) = run.steps("eval").tolist()
    labels = run.tensor("labels/loss").value(step, mode="eval")
    np.testing.assert_array_equal(labels, seen[0].y)
    np.testing.assert_allclose(
        run.tensor("predictions/loss").value(step, mode="eval"),
        seen[0].outputs.log_softmax(1),
        atol=1e-6,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("own_forward", [True, False], ids=["forward", "part"])
def test_inputs_alone_are_not_the_batch_with_its_labels(own_forward: bool, tmp_path: Path) -> None:
    module = Net(FEATURES, own_forward=own_forward)
    run = fit(tmp_path, module, learnable(), ("model_inputs",))
    assert run is not None
    assert run.tensor_names() == ["inputs/Net"]
    np.testing.assert_array_equal(
        run.tensor("inputs/Net").value(1, mode="train"), module.seen["train"][1].x
    )


def test_labels_of_errors_by_hand(tmp_path: Path) -> None:
    module = Net(FEATURES, own_forward=False, by_hand=True)
    run = fit(tmp_path, module, learnable())
    assert run is not None
    seen = module.seen["train"][2]
    np.testing.assert_array_equal(
        run.tensor("labels/loss").value(2), F.one_hot(seen.y, CLASSES).float()
    )
    np.testing.assert_array_equal(run.tensor("predictions/loss").value(2), seen.outputs)


def shuffled() -> Data:
    """Return rows with the classes of others."""
    data = learnable()
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    return Data(data.x, data.y[order])


def leaking() -> Data:
    """Return rows of which a column is the class."""
    data = learnable()
    return Data(torch.cat([data.x, data.y[:, None].float()], 1), data.y)


@pytest.mark.thorough
@pytest.mark.parametrize("own_forward", [True, False], ids=["forward", "part"])
@pytest.mark.parametrize(
    ("data", "rule"),
    [(learnable, ""), (shuffled, "corrupt_labels"), (leaking, "target_leakage")],
)
def test_rules_find_wrong_labels_and_leaked_ones_only(
    data: Any, rule: str, own_forward: bool, tmp_path: Path
) -> None:
    rows = data()
    module = Net(rows.x.shape[1], own_forward=own_forward)
    run = fit(tmp_path, module, rows, epochs=12)
    assert run is not None
    rules: list[Rule] = [CorruptLabels(), TargetLeakage()]
    found = {one.rule for one in judge(run, rules)}
    assert found == ({rule} if rule else set())
