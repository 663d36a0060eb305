"""Trainings that compute gradients, but never call ``optimizer.step()``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.attach.runs import attached, script
from tests.rules.trainings import digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding

# Trains a model with an optimizer; receives the loss of a batch.
Loop = Callable[[nn.Module, torch.optim.Optimizer, Callable[[], Tensor]], object]


def found(
    path: Path,
    loop: Loop,
    make: Callable[[nn.Module], torch.optim.Optimizer] = lambda model: torch.optim.Adam(
        model.parameters()
    ),
) -> list[Finding]:
    """Train with a loop; return the findings of all rules that warn or stop."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, model = digits(), nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer, loss = make(model), nn.CrossEntropyLoss()

    def compute() -> Tensor:
        rows = torch.randint(len(data.x), (32,))
        value: Tensor = loss(model(data.x[rows]), data.y[rows])
        return value

    rules = [kind() for kind in RULES.values()]
    with Hook(path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        loop(model, optimizer, compute)
    assert not [problem for problem in hook.problems if "failed" in problem]
    findings = judge(open_run(path / "run"), rules)
    return [finding for finding in findings if finding.severity != "info"]


def stepless(passes: int, *, clear: bool = True) -> Loop:
    def loop(_: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]) -> None:
        for _step in range(passes):
            if clear:
                optimizer.zero_grad()
            compute().backward()

    return loop


def test_missing_steps_are_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, stepless(60))
    assert (finding.rule, finding.severity) == ("untrained_parameters", "warning")
    assert finding.seen == (
        "no optimizer has taken a step: the gradients of 60 backward passes were cleared, and no "
        "weight has changed"
    )
    assert finding.remedy.startswith("call optimizer.step()")


def with_closure(
    _: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]
) -> None:
    """Interrupt the first of the steps, each of which computes many gradients."""
    passes = 0

    def closure() -> float:
        nonlocal passes
        passes += 1
        if passes > 60:
            raise KeyboardInterrupt
        optimizer.zero_grad()
        loss = compute()
        loss.backward()
        return loss.item()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)


def by_hand(
    model: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]
) -> None:
    for _ in range(60):
        optimizer.zero_grad()
        compute().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data -= 0.1 * parameter.grad


def skipped(_: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]) -> None:
    """Let a scaler skip every step."""
    scaler = torch.amp.GradScaler("cpu")
    for _step in range(60):
        optimizer.zero_grad()
        scaler.scale(compute() * torch.inf).backward()
        scaler.step(optimizer)
        scaler.update()


def explained(
    model: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]
) -> None:
    """Compute gradients for an explanation of a trained model."""
    model.eval()
    stepless(60)(model, optimizer, compute)


def by_another(
    model: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]
) -> None:
    other = torch.optim.SGD(list(model.parameters())[:2], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        compute().backward()
        other.step()


def evaluated(
    model: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]
) -> None:
    """Evaluate with gradients on, between the steps of a training."""
    for step in range(60):
        model.train(step % 10 == 0)
        loss = compute()
        if step % 10 == 0:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "loop",
    [
        stepless(39),
        stepless(60, clear=False),
        by_hand,
        skipped,
        explained,
        by_another,
        evaluated,
    ],
    ids=["short", "accumulated", "by_hand", "skipped", "explained", "by_another", "evaluated"],
)
def test_other_loops_are_ignored(loop: Loop, tmp_path: Path) -> None:
    assert [one for one in found(tmp_path, loop) if "has taken a step" in one.seen] == []


def test_many_gradients_of_a_step_are_ignored(tmp_path: Path) -> None:
    lbfgs = lambda model: torch.optim.LBFGS(model.parameters(), max_iter=100)  # noqa: E731
    assert [one.seen for one in found(tmp_path, with_closure, lbfgs)] == []


@pytest.mark.thorough
def test_an_unchanged_script_is_warned_of_missing_steps(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import torch
        from torch import nn

        torch.manual_seed(0)
        model = nn.Linear(8, 2)
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(100):
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.ones(16).long())
            value.backward()
        """,
    )
    done = attached("train.py", cwd=tmp_path, options=("--preset", "default"))
    assert done.returncode == 0, done.stderr
    assert "no optimizer has taken a step" in done.stderr + done.stdout
    run = open_run(tmp_path / "runs" / "run")
    serious = [finding.fault for finding in run.findings() if finding.severity != "info"]
    assert serious == ["untrained_parameters"]
