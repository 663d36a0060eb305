"""Optimizers that should end steps but take none."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run

ALWAYS = SaveConfig(every=1)


def idle(hook: Hook | None, steps: int) -> list[Tensor]:
    """Train with two optimizers, the second of which is never called."""
    torch.manual_seed(3)
    model = nn.Sequential(OrderedDict(encoder=nn.Linear(4, 3), decoder=nn.Linear(3, 4)))
    used = torch.optim.SGD(model[0].parameters(), lr=0.1)
    unused = torch.optim.Adam(model[1].parameters(), lr=0.1)
    if hook is not None:
        hook.watch(model, optimizer=[used, unused])
    for _ in range(steps):
        model.zero_grad()
        model(torch.ones(1, 4)).square().sum().backward()
        used.step()
    return list(model.parameters())


def test_an_optimizer_that_should_end_steps_but_takes_none_is_reported(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"weights": ALWAYS}) as hook:
        trained = idle(hook, 230)
    assert all(map(torch.equal, trained, idle(None, 230)))
    (problem,) = hook.problems
    assert problem.startswith("Adam (of decoder.weight), whose steps end the train steps")
    assert "takes none, while SGD does" in problem
    assert "from now on steps end with those of SGD" in problem
    # The steps taken while waiting are one train step.
    assert open_run(tmp_path / "run").steps("train").tolist() == list(range(230 - 201))


def test_it_is_reported_at_the_end_of_a_short_training(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"weights": ALWAYS}) as hook:
        idle(hook, 3)
    (problem,) = hook.problems
    assert "takes none, while SGD does, so no step is captured; pass watch(" in problem
    assert open_run(tmp_path / "run").steps("train").tolist() == []


def test_a_model_without_updates_lets_another_model_end_steps(
    tmp_path: Path,
) -> None:
    models = [nn.Linear(4, 1) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    ended: list[int] = []
    with Hook(tmp_path / "run") as hook:
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            hook.watch(model, optimizer=optimizer, name=f"model{number}")
        for _ in range(210):
            for model, optimizer in zip(models[:2], optimizers[:2], strict=True):
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
            ended.append(hook._session.recorder.steps)
    # The second of the two that alternate ends the steps.
    assert ended == [0] * 200 + list(range(1, 11))
    (problem,) = hook.problems
    assert "SGD (of weight)" in problem


def test_a_long_first_step_with_a_closure_is_no_unseen_step(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=8)
    with Hook(tmp_path / "run") as hook:
        hook.watch(model, optimizer=optimizer)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (model(torch.ones(1, 4)) - 1).square().sum()
            loss.backward()
            # As the writer's thread does about once a second.
            for adapter in hook._control.adapters:
                adapter.look()
            return loss

        optimizer.step(closure)
    assert hook.problems == []
