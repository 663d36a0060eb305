"""What is wrong in any training, on real trainings of which only one thing differs."""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tests.rules.inside_trainings import found
from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.contracts.contract import Contract
from vinedresser.rules.contracts.equal_workers import EqualWorkers
from vinedresser.rules.contracts.nothing_restored import NothingRestored
from vinedresser.rules.contracts.optimizer_made_anew import OptimizerMadeAnew
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

_ROWS, _STEPS, _PHASE = 64, 12, 2
_DIGITS = digits()


def judged(
    directory: Path,
    rule: Contract,
    loader: DataLoader[Any],
    make: Callable[[nn.Module, int], torch.optim.Optimizer | None],
) -> list[Finding]:
    """Train for a few steps; ``make`` may return another optimizer before each of them."""
    torch.manual_seed(0)
    net, loss = nn.Linear(64, 10), nn.CrossEntropyLoss()
    optimizer = make(net, 0)
    assert optimizer is not None
    step = 0
    with Hook(directory, collections=capture_for([rule]).collections) as hook:
        hook.watch(net, loss=loss)
        while step < _STEPS:
            for x, y in loader:
                optimizer = (make(net, step) if step else None) or optimizer
                optimizer.zero_grad()
                loss(net(x), y).backward()
                optimizer.step()
                hook.metric("step", step)
                step += 1
    return found(open_run(directory), rule)


def plain() -> DataLoader[Any]:
    return DataLoader(Noisy(None), _ROWS)


def each_phase(
    make: Callable[[nn.Module, int], torch.optim.Optimizer],
) -> Callable[[nn.Module, int], torch.optim.Optimizer | None]:
    return lambda net, step: None if step % _PHASE else make(net, step)


def adam(net: nn.Module, _: int) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), 1e-3)


def scheduled(net: nn.Module, step: int) -> torch.optim.Optimizer:
    optimizer = adam(net, step)
    # The scheduler keeps the optimizer in memory.
    StepLR(optimizer, 100)
    return optimizer


def slower(net: nn.Module, step: int) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), 1e-3 / (step + 1))


def descent(net: nn.Module, _: int) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), 1e-2)


def of_another_training(net: nn.Module, step: int) -> torch.optim.Optimizer:
    net.reset_parameters()  # type: ignore[operator]
    return adam(net, step)


@pytest.mark.parametrize("make", [adam, scheduled])
def test_an_optimizer_of_each_epoch_loses_its_state(
    make: Callable[[nn.Module, int], torch.optim.Optimizer], tmp_path: Path
) -> None:
    (finding,) = judged(tmp_path / "run", OptimizerMadeAnew(), plain(), each_phase(make))
    assert (finding.severity, finding.step, finding.value) == ("warning", 3 * _PHASE, 4)
    assert f"{Path(__file__).name}:" in finding.cause


@pytest.mark.parametrize("make", [slower, descent, of_another_training])
def test_other_settings_no_state_and_another_training_are_meant(
    make: Callable[[nn.Module, int], torch.optim.Optimizer], tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", OptimizerMadeAnew(), plain(), each_phase(make)) == []


def once(net: nn.Module, step: int) -> torch.optim.Optimizer | None:
    return None if step else adam(net, step)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Digits with noise.

    Args:
        draw: returns the noise of a row, float [64]; None: of numpy's global generator.
    """

    def __init__(self, draw: Callable[[int], Any] | None) -> None:
        self.draw = draw
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return 2 * _ROWS

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        noise = self.draw(row) if self.draw else np.random.normal(size=64)
        return _DIGITS.x[row] + torch.tensor(noise).float(), _DIGITS.y[row]


class OfGenerator(Noisy):
    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return _DIGITS.x[row] + float(self.generator.normal()), _DIGITS.y[row]


class Rows(IterableDataset[tuple[Tensor, Tensor]]):
    """Digits of all workers, or of each its own."""

    def __init__(self, *, own: bool) -> None:
        self.own = own

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Such an order is the same in all workers, and each takes a part of it.
        order = random.Random(0).sample(range(4 * _ROWS), 4 * _ROWS)
        worker = get_worker_info() if self.own else None
        start, every = (worker.id, worker.num_workers) if worker else (0, 1)
        return ((_DIGITS.x[row], _DIGITS.y[row]) for row in order[start::every])


def same_seed(_: int) -> None:
    np.random.seed(0)


def own_generator(_: int) -> None:
    worker: Any = get_worker_info()
    worker.dataset.generator = np.random.default_rng(worker.seed)


def of_row(row: int) -> Any:
    return np.random.default_rng(row).normal(size=64)


def loaded(data: Any, begin: Callable[[int], None] | None = None) -> DataLoader[Any]:
    return DataLoader(data, _ROWS // 4, num_workers=2, worker_init_fn=begin)


@pytest.mark.parametrize(
    ("loader", "what"),
    [
        (loaded(Noisy(None), same_seed), "numpy.random"),
        (loaded(OfGenerator(None)), "OfGenerator.generator"),
        (loaded(Rows(own=False)), "rows"),
    ],
)
def test_equal_workers_are_seen_in_their_first_batches(
    loader: DataLoader[Any], what: str, tmp_path: Path
) -> None:
    (finding,) = judged(tmp_path / "run", EqualWorkers(), loader, once)
    assert (finding.severity, finding.evidence["what"], finding.value) == ("warning", what, 2)
    assert finding.step <= 5
    assert (f"({Path(__file__).name}:" in finding.cause) is (what == "numpy.random")


@pytest.mark.parametrize(
    "loader",
    [
        loaded(Noisy(None)),
        loaded(Noisy(of_row), same_seed),
        loaded(OfGenerator(None), own_generator),
        loaded(Rows(own=True)),
        DataLoader(OfGenerator(None), _ROWS // 4),
    ],
    ids=["seeded", "by row", "own generators", "own rows", "no workers"],
)
def test_workers_that_differ_or_do_not_draw_are_healthy(
    loader: DataLoader[Any], tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", EqualWorkers(), loader, once) == []


def test_the_workers_of_an_evaluation_are_not_those_of_the_training(tmp_path: Path) -> None:
    # Noise that is the same each time is meant there.
    held_out = loaded(Noisy(None), same_seed)

    def evaluating(net: nn.Module, step: int) -> torch.optim.Optimizer | None:
        if step % _PHASE == 0:
            net.eval()
            with torch.no_grad():
                for x, _ in held_out:
                    net(x)
            net.train()
        return once(net, step)

    assert judged(tmp_path / "run", EqualWorkers(), loaded(Noisy(None)), evaluating) == []


def plainly(net: nn.Module) -> Any:
    return net.state_dict()


def in_a_new_dictionary(net: nn.Module) -> Any:
    return dict(net.state_dict())


def copied(net: nn.Module) -> Any:
    return copy.deepcopy(net.state_dict())


def saved(net: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    return torch.load(file)


def restored(
    directory: Path,
    keep: Callable[[nn.Module], Any],
    between: Callable[[nn.Module, Any], object] = lambda _net, _state: None,
) -> list[Finding]:
    """Train, and restore at the end what was kept after four steps."""
    rule = NothingRestored()
    net, loss = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10)), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    with Hook(directory, collections=capture_for([rule]).collections) as hook:
        hook.watch(net, loss=loss, optimizer=optimizer)
        for step in range(_STEPS):
            optimizer.zero_grad()
            loss(net(_DIGITS.x[:_ROWS]), _DIGITS.y[:_ROWS]).backward()
            optimizer.step()
            hook.metric("step", step)
            if step == 3:
                state = keep(net)
        between(net, state)
        net.load_state_dict(state)
    return found(open_run(directory), rule)


@pytest.mark.parametrize("keep", [plainly, in_a_new_dictionary])
def test_weights_kept_without_a_copy_are_not_restored(
    keep: Callable[[nn.Module], Any], tmp_path: Path
) -> None:
    (finding,) = restored(tmp_path / "run", keep)
    assert (finding.severity, finding.value, finding.evidence["step"]) == ("warning", 4, _STEPS)
    assert f"({Path(__file__).name}:" in finding.cause


def averaged(_: nn.Module, state: Any) -> None:
    for one in state.values():
        one.mul_(0.5)


@pytest.mark.parametrize(
    ("keep", "between"),
    [
        (copied, lambda _net, _state: None),
        (saved, lambda _net, _state: None),
        # The state that is loaded is of these weights, or was written into.
        (plainly, lambda net, _state: net.state_dict()),
        (plainly, averaged),
    ],
    ids=["copied", "saved", "loaded at once", "averaged in place"],
)
def test_copies_and_states_that_a_loop_writes_into_are_restored(
    keep: Callable[[nn.Module], Any], between: Callable[[nn.Module, Any], object], tmp_path: Path
) -> None:
    assert restored(tmp_path / "run", keep, between) == []
