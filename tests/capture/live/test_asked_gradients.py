"""Gradients that only queries read are those that the optimizer consumes, at a low cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.live.test_agent import OldStyle
from vinedresser.capture import Hook
from vinedresser.queries.answer import Answer
from vinedresser.queries.query import Query


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def one(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(model.parameters(), lr=0.01)]


def changing(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [OldStyle(model.parameters(), lr=0.01)]


def scaled(model: nn.Module) -> list[torch.optim.Optimizer]:
    """It divides the gradients by the scale itself, as with a GradScaler."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    optimizer.grad_scale = torch.tensor(4.0)  # type: ignore[attr-defined]
    optimizer.found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]
    return [optimizer]


def frozen(model: nn.Module) -> list[torch.optim.Optimizer]:
    assert isinstance(model, nn.Sequential)
    model[0].requires_grad_(False)
    return [
        torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad])
    ]


def two(model: nn.Module) -> list[torch.optim.Optimizer]:
    assert isinstance(model, nn.Sequential)
    return [torch.optim.SGD(model[place].parameters(), lr=0.01) for place in (0, 2)]


def partial(model: nn.Module) -> list[torch.optim.Optimizer]:
    """The script itself updates the rest."""
    assert isinstance(model, nn.Sequential)
    return [torch.optim.SGD(model[0].parameters(), lr=0.01)]


def train(path: Path, make: Callable[[nn.Module], list[torch.optim.Optimizer]]) -> Any:
    """Return the answers, and the norms that the script has seen, by step and parameter."""
    model, loss = net(), nn.MSELoss()
    optimizers = make(model)
    scale = 4.0 if make is scaled else 1.0
    answers: list[Answer] = []
    seen: list[dict[str, float]] = []
    with Hook(path, live=True) as hook:
        hook.watch(model, loss=loss, optimizer=optimizers)
        agent = hook._agent
        assert agent is not None
        query = Query.parse("norm(gradients) by tensor", "step")
        agent.observer.table.subscribe(query, answers.append, rate=None)
        for _ in range(6):
            model.zero_grad()
            x = torch.randn(32, 8)
            loss(model(x), x.sum(1, keepdim=True)).backward()
            norms = {
                name: float(parameter.grad.norm()) / scale
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
            for optimizer in optimizers:
                optimizer.step()
            seen.append(norms)
        assert hook.problems == []
    return answers, seen


@pytest.mark.parametrize("make", [one, changing, scaled, frozen, two, partial])
def test_answers_have_the_gradients_that_the_optimizer_consumes(tmp_path: Path, make: Any) -> None:
    answers, seen = train(tmp_path / "run", make)
    assert len(answers) >= 4
    for answer in answers:
        assert answer.value == pytest.approx(seen[answer.step], rel=1e-5)


def test_parameters_that_are_added_later_are_part_of_the_answer(tmp_path: Path) -> None:
    model, answers = net(), list[Answer]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(tmp_path / "run", live=True) as hook:
        hook.watch(model, optimizer=optimizer)
        agent = hook._agent
        assert agent is not None
        query = Query.parse("norm(gradients) by tensor", "step")
        agent.observer.table.subscribe(query, answers.append, rate=None)
        for step in range(6):
            if step == 3:
                model.append(nn.Linear(1, 1))
                optimizer.add_param_group({"params": model[3].parameters()})
            model.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    assert [len(answer.value) for answer in answers[-4:]] == [4, 6, 6, 6]


def test_a_step_of_which_queries_read_only_gradients_stays_cheap(tmp_path: Path) -> None:
    model, loss = net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plain: list[bool] = []
    with Hook(tmp_path / "run", live=True) as hook:
        # Before the hook's own, which ends the step.
        optimizer.register_step_post_hook(
            lambda *_: plain.append(hook._session.recorder.plain is not None)
        )
        hook.watch(model, loss=loss, optimizer=optimizer)
        agent = hook._agent
        assert agent is not None
        query = Query.parse("norm(gradients)", "step")
        agent.observer.table.subscribe(query, lambda _: None, rate=None)
        for _ in range(4):
            model.zero_grad()
            loss(model(torch.randn(4, 8)), torch.ones(4, 1)).backward()
            optimizer.step()
        assert hook._session.recorder._numbers.live == {}
    # The first had begun before anybody asked; the second shows the optimizer.
    assert plain == [True, False, True, True]
