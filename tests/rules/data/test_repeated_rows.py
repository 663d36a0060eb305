"""A training that repeats a few rows is found; one with few rows on purpose is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import Data, diabetes, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding


def drawn(rows: int, size: int) -> Iterator[Tensor]:
    """Yield numbers of some rows, drawn with replacement."""
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randint(rows, (size,), generator=generator)


def always(rows: int) -> Iterator[Tensor]:
    """Yield the numbers of the first rows."""
    while True:
        yield torch.arange(rows)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [32, 100])
def test_rows_that_were_copied_are_reported(size: int, tmp_path: Path) -> None:
    (finding,) = found_in(
        tmp_path, [CorruptInputs()], digits(), network(), every=20, order=drawn(12, size)
    )
    assert (finding.severity, finding.fault) == ("warning", "corrupt_inputs")
    assert finding.tensor == "inputs/Sequential"
    assert finding.value <= 12
    assert 95 <= finding.step <= 120
    assert finding.seen.startswith("20 batches, several times in each, had the same")


@pytest.mark.thorough
def test_a_batch_that_is_learned_by_heart_is_reported(tmp_path: Path) -> None:
    # As of a loader that is asked for its first batch at each step.
    (finding,) = found_in(
        tmp_path, [CorruptInputs()], digits(), network(), every=20, order=always(3)
    )
    assert (finding.severity, finding.fault, finding.value) == ("warning", "overfitting", 3)


def without_labels(path: Path, order: Iterator[Tensor]) -> list[Finding]:
    """Train a regression whose evaluations only call the model; return the findings."""
    rule, data = CorruptInputs(), diabetes()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, loss = network(10, 1)(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    targets = (data.y - data.y.mean()) / data.y.std()
    with Hook(path, collections=capture_for([rule]).collections, total_steps=200) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(200):
            chosen = next(order)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), targets[chosen]).backward()
            optimizer.step()
            if step % 50 == 49:
                with hook.mode("eval"), torch.no_grad():
                    model(data.x_eval)
    return [one for one in judge(open_run(path), [rule]) if one.severity != "info"]


def test_copies_are_reported_without_the_labels_of_evaluations(tmp_path: Path) -> None:
    (finding,) = without_labels(tmp_path / "run", drawn(10, 64))
    assert finding.fault == "corrupt_inputs"


def test_rows_that_are_drawn_with_replacement_are_ignored(tmp_path: Path) -> None:
    assert without_labels(tmp_path / "run", drawn(350, 64)) == []


def doses() -> Data:
    """Return repeated measurements of eight doses, and evaluations in between."""
    generator = torch.Generator().manual_seed(0)

    def features(dose: Tensor) -> Tensor:
        return torch.stack([dose, dose.square(), dose.exp()], 1)

    dose = torch.linspace(0, 1, 8).repeat(40)
    grid = torch.linspace(0, 1, 200)
    noisy = torch.sin(3 * dose) + 0.1 * torch.randn(len(dose), generator=generator)
    return Data(features(dose), noisy[:, None], features(grid), torch.sin(3 * grid)[:, None])


def points() -> Data:
    """Return twenty points of a curve without noise, and many between them."""

    def features(place: Tensor) -> Tensor:
        return torch.stack([place, place.square(), place.pow(3)], 1)

    x, grid = torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 200)
    return Data(
        features(x), torch.sin(3 * x)[:, None], features(grid), torch.sin(3 * grid)[:, None]
    )


def few() -> Data:
    """Return three digits of each class, and all for evaluations."""
    data = digits()
    rows = torch.cat([(data.y == one).nonzero()[:3, 0] for one in range(10)])
    return Data(data.x[rows], data.y[rows], data.x_eval, data.y_eval)


def table() -> Data:
    """Return all rows of a truth table, which are also evaluated."""
    bits = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)
    parity = (bits.prod(1, keepdim=True) + 1) / 2
    return Data(bits, parity, bits, parity)


@pytest.mark.thorough
@pytest.mark.parametrize("make", [doses, points, few, table])
def test_few_rows_on_purpose_are_ignored(make: Callable[[], Data], tmp_path: Path) -> None:
    data = make()
    classes = data.y.dtype == torch.int64
    found = found_in(
        tmp_path,
        [CorruptInputs()],
        data,
        network(data.x.shape[1], 10 if classes else 1),
        loss=nn.CrossEntropyLoss() if classes else nn.MSELoss(),
        every=20,
        order=drawn(len(data.x), 64) if make in (doses, table) else always(len(data.x)),
    )
    assert found == []
