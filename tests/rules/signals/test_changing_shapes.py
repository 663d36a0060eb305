"""Batches whose rows, labels or predictions differ in shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.data.trainings import found_in
from tests.rules.trainings import Data, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.baseline import Baseline, baseline_gain
from vinedresser.testing.runs import make_run, step_record


def test_sequences_as_torch_passes_them_on(tmp_path: Path) -> None:
    """Its cross-entropy makes them to images of height 1."""
    generator = np.random.default_rng(0)
    labels, scores = generator.integers(5, size=(8, 1, 6)), generator.normal(size=(8, 5, 1, 6))
    tensors = {"labels/loss": labels, "predictions/loss": scores}
    batches = Batches()
    for step in make_run(tmp_path / "run", [step_record(0, tensors=tensors)]).follow():
        batches.update(step)
    (compared,) = batches.compared
    assert np.array_equal(compared.labels, labels[:, 0])
    assert np.array_equal(compared.predictions, scores[:, :, 0].transpose(0, 2, 1))


def of_any_size() -> nn.Module:
    """Return a classifier of images of any size."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def cropped(images: Tensor, size: int) -> Tensor:
    """Return the middle of square images."""
    edge = (images.shape[-1] - size) // 2
    return images[..., edge : edge + size, edge : edge + size]


def cropping() -> Callable[[Tensor], Tensor]:
    """Return a function that crops every sixth batch, so also some of those that are captured."""
    sizes = cycle([8, 8, 8, 8, 8, 6])
    return lambda images: cropped(images, next(sizes))


def evaluated(data: Data) -> Callable[[int], Data]:
    """Return a function that crops every second evaluation."""

    def chosen(number: int) -> Data:
        x, y = data.x_eval[:100], data.y_eval[:100]
        rows = slice(50 * (number % 2), 50 * (number % 2) + 50)
        return replace(data, x_eval=cropped(x[rows], 6 if number % 2 else 8), y_eval=y[rows])

    return chosen


def judged_by_turns(
    path: Path, network: nn.Module, loss: nn.Module, batches: list[Data]
) -> list[tuple[str, str]]:
    """Train on batches by turns; return the rule and the words of each warning and stop."""
    torch.set_num_threads(1)
    rules = [kind() for kind in RULES.values()]
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    with Hook(path / "run", collections=capture_for(rules).collections, total_steps=200) as hook:
        hook.watch(network, loss=loss, optimizer=optimizer)
        for _, batch in zip(range(200), cycle(batches), strict=False):
            optimizer.zero_grad()
            loss(network(batch.x), batch.y).backward()
            optimizer.step()
    found = judge(open_run(path / "run"), rules)
    return [(one.rule, one.seen) for one in found if one.severity != "info"]


@pytest.mark.thorough
def test_batches_of_several_sizes_are_judged(tmp_path: Path) -> None:
    data = digits(image=True)
    rules = [kind() for kind in RULES.values()]
    found = found_in(
        tmp_path,
        rules,
        data,
        of_any_size,
        every=50,
        evaluations=evaluated(data),
        prepare=cropping(),
    )
    assert [(one.rule, one.severity) for one in found if one.severity != "info"] == []


@pytest.mark.thorough
def test_noisy_images_of_several_sizes_are_judged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = digits(image=True)
    rows = data.x[:60] + 0.3 * torch.randn(60, 1, 8, 8)
    small = Data(cropped(rows, 6), cropped(data.x[:60], 6), rows, data.x[:60])
    large = Data(rows, data.x[:60], rows, data.x[:60])
    network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    assert judged_by_turns(tmp_path, network, nn.MSELoss(), [large, small]) == []


@pytest.mark.thorough
def test_pairs_in_batches_of_several_sizes_are_judged(tmp_path: Path) -> None:
    """Each row is a class of its own, as in contrastive training: the last batch has fewer."""
    torch.manual_seed(0)
    rows = digits().x[:40]
    other = rows + 0.1 * torch.randn(40, 64)

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = nn.Linear(64, 32)

        def forward(self, pairs: Tensor) -> Tensor:
            first, second = functional.normalize(self.tower(pairs), dim=-1).unbind(1)
            return 10 * first @ second.T

    data = Data(torch.stack([rows, other], 1), torch.arange(40), rows, rows)
    last = Data(data.x[:24], torch.arange(24), rows, rows)
    assert judged_by_turns(tmp_path, Pairs(), nn.CrossEntropyLoss(), [data, last]) == []


@pytest.mark.parametrize("kind", ["inputs", "labels"])
def test_only_rows_of_the_first_size_are_fitted(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(300, 8))
    labels = inputs @ random.normal(size=(8, 2)) + random.normal(size=(300, 2))
    records = []
    for step, start in enumerate(range(0, 300, 50)):
        rows = slice(start, start + 50)
        x, y = inputs[rows], labels[rows]
        if step % 2 and kind == "inputs":
            x = x[:, :5]
        elif step % 2:
            y = y[:, :1]
        tensors = {"model_inputs/model": x, "labels/own": y, "predictions/own": np.zeros_like(y)}
        records.append(step_record(5 * step, scalars={"losses/own": 1.0}, tensors=tensors))
    signal = Baseline()
    for one in make_run(tmp_path / "run", records).follow():
        signal.batches.update(one)
        signal.update(one)
    first = np.r_[0:50, 100:150, 200:250]
    assert signal.gain("own") == baseline_gain(inputs[first], labels[first], 2)
