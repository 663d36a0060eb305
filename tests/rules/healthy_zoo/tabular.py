"""Healthy trainings on tables: regression, rare classes, several labels, unusual losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_wine, make_blobs, make_multilabel_classification
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from tests.rules.healthy_zoo.data import Split, batches, diabetes, rare_positives
from tests.rules.healthy_zoo.loop import Loop, Score, accuracy, r2, seeded, watched
from tests.rules.healthy_zoo.models import perceptron

__all__ = ["TABULAR"]


def _auc(outputs: Tensor, targets: Tensor) -> float:
    """Return the area under the ROC curve."""
    return float(roc_auc_score(targets, outputs))


def _regression(store: Path, seed: int) -> None:
    """Targets of mean 0 and variance 1, half of which cannot be explained."""
    seeded(seed)
    raw = diabetes()
    mean, std = raw.y.mean(), raw.y.std()
    split = raw._replace(y=(raw.y - mean) / std, y_held=(raw.y_held - mean) / std)
    model = perceptron(10, 8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    Loop(split, nn.MSELoss(), steps=500, batch=32, metric=("r2", r2)).run(
        store, seed, model, optimizer
    )
    with torch.no_grad():
        assert r2(model(split.x_held), split.y_held) >= 0.45


def _large_targets(store: Path, seed: int) -> None:
    """Unscaled targets from 25 to 346: the loss falls from 29,000 to below 4,000."""
    seeded(seed)
    split, model = diabetes(), perceptron(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    Loop(split, nn.MSELoss(), steps=1000, batch=32, metric=None).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert r2(model(split.x_held), split.y_held) >= 0.3


def _robust_loss(store: Path, seed: int) -> None:
    """A line with some outliers, and Huber's loss."""
    seeded(seed)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 5))
    y = x @ np.array([3.0, -2.0, 1.0, 0.5, 0.0]) + 0.1 * rng.normal(size=1000)
    noisy = y + 50.0 * (rng.random(1000) < 0.05)
    inputs = torch.tensor(x, dtype=torch.float32)
    targets = torch.tensor(noisy, dtype=torch.float32)[:, None]
    split = Split(inputs[:800], targets[:800], inputs[800:], targets[800:])
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    Loop(split, nn.HuberLoss(), steps=500, metric=None).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert r2(model(inputs[800:]), torch.tensor(y[800:, None])) >= 0.95


def _negative_loss(store: Path, seed: int) -> None:
    """Learns mean and variance by a likelihood whose negative logarithm falls below zero."""
    seeded(seed)
    x = torch.linspace(-3, 3, 1000)[torch.randperm(1000)][:, None]
    y = torch.sin(2 * x) + 0.05 * (1 + x.abs()) * torch.randn(1000, 1)
    model = perceptron(1, 32, 32, 2, activation=nn.Tanh)
    loss_fn = nn.GaussianNLLLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = batches(800, 64, seed)
    with watched(store, steps=1200, lr=5e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(1200):
            if step % 100 == 0:
                model.eval()
                with torch.no_grad():
                    mean, log_variance = model(x[800:]).chunk(2, 1)
                    loss_fn(mean, y[800:], log_variance.exp())
                model.train()
            chosen = next(rows)
            optimizer.zero_grad()
            mean, log_variance = model(x[chosen]).chunk(2, 1)
            loss_fn(mean, y[chosen], log_variance.exp()).backward()
            optimizer.step()
    with torch.no_grad():
        assert r2(model(x[800:])[:, :1], y[800:]) >= 0.9


def _rare_class(store: Path, seed: int) -> None:
    """One row in twenty is positive: accuracy starts near 95 %."""
    seeded(seed)
    split, model = rare_positives(), perceptron(20, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def right(outputs: Tensor, targets: Tensor) -> float:
        return ((outputs > 0) == (targets > 0.5)).float().mean().item()

    Loop(split, nn.BCEWithLogitsLoss(), steps=800, metric=("accuracy", right)).run(
        store, seed, model, optimizer
    )
    with torch.no_grad():
        found = (model(split.x_held) > 0)[split.y_held > 0.5].float().mean().item()
    assert found >= 0.6, f"{found:.2f} of the positives found"


def _clicks(store: Path, seed: int) -> None:
    """Mostly noise, like clicks on advertisements; the bias starts at the base rate.

    The loss falls by a tenth and no more, for there is no more to be had.
    """
    _learn_clicks(store, seed, ("auc", _auc))


def _clicks_unmeasured(store: Path, seed: int) -> None:
    """The same without a metric: only the loss shows what is learned."""
    _learn_clicks(store, seed, None)


def _learn_clicks(store: Path, seed: int, metric: tuple[str, Score] | None) -> None:
    seeded(seed)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8000, 16))
    odds = x @ np.linspace(-0.5, 0.5, 16) - 2.5
    y = rng.random(8000) < 1 / (1 + np.exp(-odds))
    inputs, targets = torch.tensor(x, dtype=torch.float32), torch.tensor(y[:, None]).float()
    split = Split(inputs[:6000], targets[:6000], inputs[6000:], targets[6000:])
    model = nn.Linear(16, 1)
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, float(np.log(y.mean() / (1 - y.mean()))))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    Loop(split, nn.BCEWithLogitsLoss(), batch=128, metric=metric).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert _auc(model(split.x_held), split.y_held) >= 0.7


def _multi_label(store: Path, seed: int) -> None:
    """Each row may have any of eight labels."""
    seeded(seed)
    x, y = make_multilabel_classification(3000, 30, n_classes=8, n_labels=2, random_state=0)
    inputs = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    targets = torch.tensor(y, dtype=torch.float32)
    split = Split(inputs[:2400], targets[:2400], inputs[2400:], targets[2400:])
    model = perceptron(30, 64, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    Loop(split, nn.BCEWithLogitsLoss(), steps=500, metric=None).run(store, seed, model, optimizer)
    with torch.no_grad():
        right = ((model(split.x_held) > 0) == (split.y_held > 0.5)).float().mean().item()
    # Always predicting "no" is correct for 3 in 4.
    assert right >= 0.83, f"{right:.3f}"


def _separable(store: Path, seed: int) -> None:
    """All predictions are correct from the second evaluation on."""
    seeded(seed)
    x, y = make_blobs(1000, 4, centers=3, cluster_std=0.5, random_state=0)
    inputs, targets = torch.tensor(x / x.std(0), dtype=torch.float32), torch.tensor(y)
    split = Split(inputs[:800], targets[:800], inputs[800:], targets[800:])
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    Loop(split, nn.CrossEntropyLoss(), steps=400).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) == 1.0


def _noisy_labels(store: Path, seed: int) -> None:
    """A quarter of the training labels are wrong, but the model learns the correct ones."""
    seeded(seed)
    x, y = make_blobs(3000, 8, centers=4, cluster_std=3.0, random_state=1)
    rng = np.random.default_rng(0)
    wrong = np.where(rng.random(3000) < 0.25, rng.integers(0, 4, 3000), y)
    inputs, clean = torch.tensor(x / x.std(0), dtype=torch.float32), torch.tensor(y)
    split = Split(inputs[:2400], torch.tensor(wrong)[:2400], inputs[2400:], clean[2400:])
    model = perceptron(8, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    Loop(split, nn.CrossEntropyLoss(), steps=500).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.93


def _no_framework(store: Path, seed: int) -> None:
    """Logistic regression in plain numpy, which reports its steps to the hook."""
    rng = np.random.default_rng(seed)
    x, y = load_wine(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    hot = np.eye(3)[y]
    w, b = np.zeros((13, 3)), np.zeros(3)
    with watched(store, lr=0.1) as hook:
        for _ in range(400):
            rows = rng.integers(0, len(x), 32)
            scores = x[rows] @ w + b
            odds = np.exp(scores - scores.max(1, keepdims=True))
            p = odds / odds.sum(1, keepdims=True)
            error = (p - hot[rows]) / 32
            w -= 0.1 * x[rows].T @ error
            b -= 0.1 * error.sum(0)
            hook.step(
                inputs=x[rows],
                labels=y[rows],
                outputs=p,
                loss=-np.log((p * hot[rows]).sum(1)).mean(),
                metrics={"accuracy": (p.argmax(1) == y[rows]).mean()},
            )
    assert ((x @ w + b).argmax(1) == y).mean() >= 0.97


TABULAR = {
    "regression": _regression,
    "large_targets": _large_targets,
    "robust_loss": _robust_loss,
    "negative_loss": _negative_loss,
    "rare_class": _rare_class,
    "clicks": _clicks,
    "clicks_unmeasured": _clicks_unmeasured,
    "multi_label": _multi_label,
    "separable": _separable,
    "noisy_labels": _noisy_labels,
    "no_framework": _no_framework,
}
