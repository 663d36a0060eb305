"""The rule about training and evaluation mode, on real trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.inside_trainings import found
from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.wrong_mode import WrongMode
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

Modes = Callable[[nn.Module, str], object]


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))


def norming() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


def both() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 10)
    )


def fitted() -> nn.Module:
    """Return a network with pretrained batch norm statistics."""
    model = norming()
    with torch.no_grad():
        for _ in range(60):
            model(digits().x[:512])
    return model


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10))


def right(model: nn.Module, moment: str) -> None:
    model.train(moment == "train")


def always_eval(model: nn.Module, moment: str) -> None:
    model.eval()


def always_train(model: nn.Module, moment: str) -> None:
    model.train()


def not_back(model: nn.Module, moment: str) -> None:
    """Switch to training mode once, but not after the first evaluation."""
    model.train(moment == "start" or (moment == "train" and model.training))


def frozen_norms(model: nn.Module, moment: str) -> None:
    model.train(moment == "train")
    model[1].eval()  # type: ignore[index]


def sampling_dropout(model: nn.Module, moment: str) -> None:
    model.train(moment == "train")
    model[2].train()  # type: ignore[index]


def judged(
    directory: Path,
    model: Callable[[], nn.Module],
    modes: Modes,
    *,
    block: bool = True,
    steps: int = 100,
    every: int = 20,
    metric: bool = True,
    copies: int = 1,
) -> list[Finding]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rule, data, net, loss = WrongMode(), digits(), model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    rows = batches(len(data.x), 64)
    with Hook(directory, collections=capture_for([rule]).collections, total_steps=steps) as hook:
        hook.watch(net, loss=loss, optimizer=optimizer)
        modes(net, "start")
        for step in range(steps):
            if step and step % every == 0:
                modes(net, "eval")
                if block:
                    with hook.mode("eval"), torch.no_grad():
                        outputs = torch.stack([net(data.x_eval) for _ in range(copies)]).mean(0)
                        if metric:
                            hook.metric(
                                "accuracy", (outputs.argmax(1) == data.y_eval).float().mean()
                            )
                else:
                    with torch.no_grad():
                        loss(net(data.x_eval), data.y_eval)
            modes(net, "train")
            chosen = next(rows)
            optimizer.zero_grad()
            loss(net(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
    return found(open_run(directory), rule)


@pytest.mark.thorough
@pytest.mark.parametrize("model", [dropping, norming])
@pytest.mark.parametrize("block", [True, False])
def test_training_in_eval_mode(model: Callable[[], nn.Module], block: bool, tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", model, always_eval, block=block)
    assert (finding.severity, finding.fault, finding.mode) == ("warning", "wrong_mode", "train")
    assert (finding.since, finding.step, finding.value) == (0, 40, 0.0)
    assert ("dropout is inactive" in finding.cause) is (model is dropping)
    assert ("batch norm" in finding.cause) is (model is norming)
    assert finding.remedy.startswith("call model.train()")


@pytest.mark.thorough
@pytest.mark.parametrize("block", [True, False])
def test_training_mode_missing_after_an_evaluation(block: bool, tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", dropping, not_back, block=block)
    assert (finding.severity, finding.since) == ("warning", 20)
    assert "in training mode before" in finding.seen
    assert "again after an evaluation" in finding.cause


@pytest.mark.thorough
@pytest.mark.parametrize("model", [dropping, norming])
@pytest.mark.parametrize("block", [True, False])
def test_evaluation_in_training_mode(
    model: Callable[[], nn.Module], block: bool, tmp_path: Path
) -> None:
    (finding,) = judged(tmp_path / "run", model, always_train, block=block)
    assert (finding.severity, finding.fault, finding.mode) == ("warning", "wrong_mode", "eval")
    assert (finding.since, finding.step, finding.value) == (20, 60, 1.0)
    assert ("dropout is still active" in finding.cause) is (model is dropping)
    assert ("batch norm uses and learns" in finding.cause) is (model is norming)
    assert finding.remedy.startswith("call model.eval()")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "modes"),
    [
        (dropping, right),
        (norming, right),
        # The mode makes no difference.
        (plain, always_eval),
        (plain, always_train),
        # The mode is intended.
        (both, frozen_norms),
        (both, sampling_dropout),
    ],
)
def test_correct_or_irrelevant_modes_are_ignored(
    model: Callable[[], nn.Module], modes: Modes, tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", model, modes) == []


def test_passes_without_a_metric_or_at_every_step_are_ignored(tmp_path: Path) -> None:
    # Such as pictures of a generator, or rows weighted by their loss.
    assert judged(tmp_path / "shows", norming, always_train, metric=False) == []
    assert judged(tmp_path / "weighs", norming, always_train, every=1, block=False, steps=15) == []


@pytest.mark.thorough
def test_fine_tuning_with_pretrained_statistics_is_info(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", fitted, always_eval)
    assert finding.severity == "info"


class Dropping(nn.Module):
    """Drops units by a function of torch, in training or always.

    Args:
        kind: the function.
        always: also in evaluation mode.
    """

    def __init__(self, kind: str, *, always: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)
        self.kind, self.always = kind, always

    def forward(self, x: Tensor) -> Tensor:
        on = self.always or self.training
        hidden = torch.tanh(self.first(x))
        if self.kind == "attention":
            heads = hidden.reshape(-1, 4, 4, 4)
            share = 0.5 if on else 0.0
            hidden = functional.scaled_dot_product_attention(
                heads, heads, heads, dropout_p=share
            ).flatten(1)
        elif self.kind == "random":
            # As of a variational autoencoder, in any mode.
            hidden = hidden + 0.1 * torch.randn_like(hidden)
        elif self.kind == "inputs":
            # As of a denoising autoencoder.
            hidden = torch.tanh(self.first(functional.dropout(x, 0.1)))
        else:
            hidden = functional.dropout(hidden, 0.5, training=on)
        logits: Tensor = self.last(hidden)
        return logits


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "always", "copies", "fires"),
    [
        ("dropout", True, 1, True),
        ("attention", True, 1, True),
        ("dropout", False, 1, False),
        ("attention", False, 1, False),
        ("random", True, 1, False),
        ("inputs", True, 1, False),
        # Monte Carlo dropout.
        ("dropout", True, 5, False),
    ],
)
def test_dropout_that_stays_on_in_evaluations(
    kind: str, always: bool, copies: int, fires: bool, tmp_path: Path
) -> None:
    findings = judged(tmp_path / "run", lambda: Dropping(kind, always=always), right, copies=copies)
    assert [(finding.step, finding.tensor) for finding in findings] == [
        (60, "state/dropped")
    ] * fires
    for finding in findings:
        assert finding.severity == "warning"
        assert finding.remedy.startswith("use training=self.training")


class Norming(nn.Module):
    """Normalises by a function of torch, by the batch in training or always.

    Args:
        always: also in evaluation mode.
        running: with running statistics.
    """

    def __init__(self, *, always: bool, running: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)
        self.mean: Tensor | None
        self.variance: Tensor | None
        self.register_buffer("mean", torch.zeros(64) if running else None)
        self.register_buffer("variance", torch.ones(64) if running else None)
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        on = self.always or self.training
        hidden = functional.batch_norm(self.first(x), self.mean, self.variance, training=on)
        logits: Tensor = self.last(torch.tanh(hidden))
        return logits


@pytest.mark.parametrize(
    ("always", "running", "fires"),
    # Without running statistics, those of the batch are meant.
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_norms_of_the_batch_in_evaluations(
    always: bool, running: bool, fires: bool, tmp_path: Path
) -> None:
    model = lambda: Norming(always=always, running=running)  # noqa: E731
    findings = judged(tmp_path / "run", model, right)
    assert [(finding.step, finding.tensor) for finding in findings] == [
        (60, "state/batched")
    ] * fires
