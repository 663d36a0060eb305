"""`state/`: in which mode the model runs, and what its gradient scaler does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from vinedresser.capture import Hook, Run, SaveConfig, open_run
from vinedresser.store.step_record import Mode

STATE = {"state": SaveConfig(every=1)}


def values(run: Run, name: str, mode: Mode = "train") -> list[float]:
    found: list[float] = run.scalars("state", mode=mode)[f"state/{name}"].values.tolist()
    return found


def test_the_share_of_modules_in_training_mode(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.RReLU(), nn.Dropout(0.0),
        nn.BatchNorm1d(4, track_running_stats=False), nn.Dropout(0.1), nn.Linear(4, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(3):
            model.train()
            if step == 1:
                # Somebody has frozen its statistics, and forgot one dropout in evaluation.
                model[1].eval()
            model(torch.randn(5, 3)).sum().backward()
            optimizer.step()
            model.eval()
            if step == 2:
                model[3].train()
            with torch.no_grad():
                model(torch.randn(5, 3))
    run = open_run(tmp_path / "run")
    assert values(run, "training") == [1.0, 0.8, 1.0]
    assert values(run, "training", "eval") == [0.0, 0.0, 0.2]


@pytest.mark.parametrize(
    ("module", "differs"),
    [
        (nn.Linear(2, 2), False),
        (nn.LayerNorm(2), False),
        (nn.Dropout1d(0.2), True),
        (nn.AlphaDropout(0.2), True),
        (nn.SyncBatchNorm(2), True),
        (nn.InstanceNorm1d(2), False),
        (nn.InstanceNorm1d(2, track_running_stats=True), True),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.3), True),
        (nn.GRU(2, 2, num_layers=2), False),
        (nn.MultiheadAttention(2, 1, dropout=0.1), True),
        (nn.MultiheadAttention(2, 1), False),
    ],
)
def test_mode_dependent_modules(module: nn.Module, differs: bool) -> None:
    from vinedresser.capture.torch_.modules import training_share

    modules = list(module.modules())
    assert training_share(modules) == (1.0 if differs else None)
    module.eval()
    assert training_share(modules) == (0.0 if differs else None)


def test_a_model_without_mode_dependent_modules_has_no_share(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer, name="tiny")
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
    assert set(open_run(tmp_path / "run").scalars("state")) == {"state/tiny.uncleared"}


@pytest.mark.parametrize("fused", [False, True])
def test_scale_and_skipped_steps(fused: bool, tmp_path: Path) -> None:
    def train(hook: Hook | None) -> tuple[list[float], list[float]]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        if hook is not None:
            hook.watch(model, optimizer=optimizer, name="net")
        scaler, scales = GradScaler("cpu", init_scale=64.0, growth_interval=2), []
        for step in range(6):
            optimizer.zero_grad()
            value = model(torch.randn(4, 3)).sum() * (float("inf") if step in (1, 3) else 1.0)
            scaler.scale(value).backward()
            scales.append(scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
        return scales, model.weight.tolist()

    step = GradScaler.step
    hook = Hook(tmp_path / "run", collections=STATE)
    hooked = train(hook)
    assert GradScaler.__dict__["step"] is not step
    hook.close()
    assert GradScaler.__dict__["step"] is step
    assert hook.problems == []
    assert hooked == train(None)
    # A step that is skipped is one only where the optimizer itself skips it.
    taken = range(6) if fused else (0, 2, 4, 5)
    run = open_run(tmp_path / "run")
    assert values(run, "net.grad_scale") == [hooked[0][step] for step in taken]
    assert values(run, "net.skipped_steps") == [[0, 0, 1, 1, 2, 2][step] for step in taken]


def train_with_calls(path: Path, others: Callable[[nn.Module], object], *, rows: int = 8) -> Run:
    """Train three steps on batches of some rows; `others` calls the model before each of them."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            others(model)
            optimizer.zero_grad()
            model(torch.randn(rows, 3)).mean().backward()
            optimizer.step()
    return open_run(path)


@torch.no_grad()
def act(model: nn.Module) -> None:
    """Choose two actions."""
    model(torch.randn(1, 3)).argmax()
    model(torch.randn(1, 3)).argmax()


@pytest.mark.parametrize(
    "others",
    [act, lambda model: model(torch.randn(3)).argmax(), lambda model: model(torch.randn(1, 3))],
)
def test_an_agent_acts_between_its_updates(
    others: Callable[[nn.Module], object], tmp_path: Path
) -> None:
    assert values(train_with_calls(tmp_path / "run", others), "acts") == [1.0] * 3


@pytest.mark.parametrize(
    ("others", "rows"),
    [
        (lambda _: None, 8),
        (torch.no_grad()(lambda model: model(torch.randn(8, 3))), 8),
        # Batches of one row, accumulated.
        (lambda model: model(torch.randn(1, 3)).mean().backward(), 1),
        (lambda model: model(torch.randn(3, 3)).mean().backward(), 8),
    ],
)
def test_other_calls_are_no_acts(
    others: Callable[[nn.Module], object], rows: int, tmp_path: Path
) -> None:
    run = train_with_calls(tmp_path / "run", others, rows=rows)
    assert "state/acts" not in run.scalars("state")


def test_an_evaluation_line_by_line_is_no_act(tmp_path: Path) -> None:
    def evaluate(model: nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            model(torch.randn(1, 3))
        model.train()

    run = train_with_calls(tmp_path / "run", evaluate)
    assert "state/acts" not in run.scalars("state")


def test_without_the_collection_scalers_are_unchanged(tmp_path: Path) -> None:
    model, step = nn.Linear(3, 2), GradScaler.step
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run") as hook:
        hook.watch(model, optimizer=optimizer)
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        assert GradScaler.__dict__["step"] is step
    assert open_run(tmp_path / "run").scalars("state") == {}
