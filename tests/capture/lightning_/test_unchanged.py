"""Unchanged scripts of Lightning under `vinedresser run`: losses, and what `self.log` is given."""

from __future__ import annotations

import pytest

from tests.capture.attach.runs import Both, both, script
from tests.warm_python import TORCH

SCRIPT = """
    import logging, warnings
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Classifier(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

        def training_step(self, batch, index):
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            accuracy = (self.net(x).argmax(1) == y).float().mean()
            self.log("accuracy", accuracy, on_step=False, on_epoch=True)
            self.log(name="both", value=loss, on_step=True, on_epoch=True)
            print("step", loss.item(), accuracy.item())
            return loss

        def validation_step(self, batch, index):
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            self.log_dict({"val_loss": loss, "val_index": float(index)})

        def on_validation_epoch_end(self):
            if not self.trainer.sanity_checking:
                print("val_loss", self.trainer.callback_metrics["val_loss"].item())

        def on_train_epoch_end(self):
            self.log("late", 1.5)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    class Adversaries(LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.makes = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6))
            self.judges = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

        def training_step(self, batch, index):
            real = batch[0]
            makes, judges = self.optimizers()
            wanted = F.binary_cross_entropy_with_logits
            made = self.makes(torch.randn(8, 2))
            of_judges = wanted(self.judges(real), torch.ones(8, 1)) + wanted(
                self.judges(made.detach()), torch.zeros(8, 1)
            )
            judges.zero_grad()
            self.manual_backward(of_judges)
            judges.step()
            of_makes = wanted(self.judges(made), torch.ones(8, 1))
            makes.zero_grad()
            self.manual_backward(of_makes)
            makes.step()
            self.log("makes", of_makes)
            print("step", of_judges.item(), of_makes.item())

        def configure_optimizers(self):
            return [
                torch.optim.Adam(self.makes.parameters(), lr=0.01),
                torch.optim.Adam(self.judges.parameters(), lr=0.01),
            ]

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )

    def train(module, accumulated, automatic=True):
        torch.manual_seed(0)
        x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
        loader = DataLoader(TensorDataset(x, y), batch_size=8)
        trainer = Trainer(
            max_epochs=2, accelerator="cpu", accumulate_grad_batches=accumulated, **quiet
        )
        trainer.fit(module, loader, loader if automatic else None)
        print("end", sum(one.sum().item() for one in module.parameters()))

    torch.manual_seed(0)
    train(Classifier(), 1)
    train(Classifier(), 2)
    train(Adversaries(), 1, automatic=False)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Do all trainings in one process, alone and captured."""
    directory = tmp_path_factory.mktemp("lightning")
    script(directory, SCRIPT)
    done = both("train.py", cwd=directory, loaded=TORCH)
    assert done.attached.returncode == 0, done.attached.stderr
    assert done.attached.stdout == done.alone.stdout
    return done


def printed(trained: Both, number: int, word: str) -> list[list[float]]:
    """Return the numbers of a training's printed lines that begin with a word."""
    own = trained.alone.stdout.split("end ")[number - 1].splitlines()
    return [[*map(float, line.split()[1:])] for line in own if line.startswith(f"{word} ")]


@pytest.mark.thorough
@pytest.mark.parametrize("accumulated", [1, 2])
def test_an_accuracy_of_another_forward_hides_no_loss(trained: Both, accumulated: int) -> None:
    run, steps = trained.open(accumulated), printed(trained, accumulated, "step")
    means = [
        [
            sum(column) / accumulated
            for column in zip(*steps[first : first + accumulated], strict=True)
        ]
        for first in range(0, len(steps), accumulated)
    ]
    losses = run.scalars("losses", mode="train")["losses/loss"]
    assert losses.values.tolist() == pytest.approx([mean[0] for mean in means])
    metrics = run.scalars("metrics", mode="train")
    assert metrics["metrics/accuracy"].values.tolist() == pytest.approx([mean[1] for mean in means])
    assert metrics["metrics/both"].values.tolist() == pytest.approx([mean[0] for mean in means])
    epoch = len(means) // 2
    assert metrics["metrics/late"].steps.tolist() == [epoch, 2 * epoch]
    evaluated = run.scalars("metrics", mode="eval")
    assert sorted(evaluated) == ["metrics/val_index", "metrics/val_loss"]
    [*said] = (value for [value] in printed(trained, accumulated, "val_loss"))
    assert evaluated["metrics/val_loss"].values.tolist() == pytest.approx(said)
    assert evaluated["metrics/val_index"].values.tolist() == [1.5, 1.5]


@pytest.mark.thorough
def test_two_optimizers_of_a_module_have_a_loss_each(trained: Both) -> None:
    run, steps = trained.open(3), printed(trained, 3, "step")
    losses = run.scalars("losses", mode="train")
    assert losses["losses/judges"].values.tolist() == pytest.approx([step[0] for step in steps])
    assert losses["losses/makes"].values.tolist() == pytest.approx([step[1] for step in steps])
    metrics = run.scalars("metrics", mode="train")["metrics/makes"]
    assert metrics.values.tolist() == pytest.approx([step[1] for step in steps])
