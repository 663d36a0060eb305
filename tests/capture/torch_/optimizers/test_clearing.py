"""`state/uncleared`: whether gradients are added to those of the step before."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run

STATE = {"state": SaveConfig(every=2)}
Clear = Callable[[nn.Module, torch.optim.Optimizer], object]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def loss_of(model: nn.Module) -> Tensor:
    return model(torch.randn(5, 4)).square().mean()  # type: ignore[no-any-return]


def _through_data(model: nn.Module, _: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.zero_()


def uncleared(
    directory: Path, clear: Clear, *, batches: int = 1, late: bool = False
) -> dict[int, float]:
    """Return the scalar by step of a training whose gradients are cleared in some way."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(directory / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(5):
            if not late:
                clear(model, optimizer)
            for batch in range(batches):
                loss = loss_of(model)
                if late and not batch:
                    clear(model, optimizer)
                loss.backward()
            optimizer.step()
    assert hook.problems == []
    found = open_run(directory / "run").scalars("state")["state/uncleared"]
    return dict(zip(found.steps.tolist(), found.values.tolist(), strict=True))


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "clear",
    [
        lambda _, optimizer: optimizer.zero_grad(),
        lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
        lambda model, _: model.zero_grad(),
        _through_data,
    ],
    ids=["None", "zero", "model", "data"],
)
def test_cleared_gradients(clear: Clear, late: bool, batches: int, tmp_path: Path) -> None:
    assert uncleared(tmp_path, clear, batches=batches, late=late) == {0: 0.0, 2: 0.0, 4: 0.0}


@pytest.mark.parametrize("batches", [1, 3])
def test_gradients_that_are_never_cleared(batches: int, tmp_path: Path) -> None:
    # There are none before the first step.
    found = uncleared(tmp_path, lambda _model, _optimizer: None, batches=batches)
    assert found == {0: 0.0, 2: 1.0, 4: 1.0}


@pytest.mark.parametrize(
    ("outside", "inside", "kept"),
    [(False, True, 0.0), (True, False, 0.0), (True, True, 0.0), (False, False, 1.0)],
)
def test_gradients_that_a_closure_computes(
    outside: bool, inside: bool, kept: float, tmp_path: Path
) -> None:
    model, rows = network(), torch.randn(5, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)

    def closure() -> Tensor:
        if inside:
            optimizer.zero_grad()
        loss: Tensor = model(rows).square().mean()
        loss.backward()
        return loss

    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(5):
            if outside:
                optimizer.zero_grad()
            optimizer.step(closure)
    found = open_run(tmp_path / "run").scalars("state")["state/uncleared"]
    assert found.values.tolist() == [0.0, kept, kept]


@pytest.mark.parametrize(("cleared", "kept"), [(True, 0.0), (False, 1.0)])
def test_a_closure_that_computes_the_last_of_several_batches(
    cleared: bool, kept: float, tmp_path: Path
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def closure() -> Tensor:
        loss = loss_of(model)
        loss.backward()
        return loss

    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(5):
            loss = loss_of(model)
            if cleared:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step(closure)
    found = open_run(tmp_path / "run").scalars("state")["state/uncleared"]
    assert found.values.tolist() == [0.0, kept, kept]


def test_gradients_of_another_loss_that_are_cleared_before_the_own(tmp_path: Path) -> None:
    generator, critic = network(), nn.Linear(2, 1)
    first = torch.optim.SGD(generator.parameters(), lr=0.01)
    second = torch.optim.SGD(critic.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(generator, optimizer=first, name="generator")
        hook.watch(critic, optimizer=second, name="critic")
        for _ in range(5):
            # Its backward pass adds to the gradients of the generator, too.
            second.zero_grad()
            critic(generator(torch.randn(5, 4))).square().mean().backward()
            second.step()
            first.zero_grad()
            critic(generator(torch.randn(5, 4))).mean().backward()
            first.step()
    found = open_run(tmp_path / "run").scalars("state")
    assert {value for series in found.values() for value in series.values.tolist()} == {0.0}


def test_a_forward_that_is_called_directly_leaves_the_step_open(tmp_path: Path) -> None:
    """As in a soft actor-critic: the critic's own forward is not seen, only that for the actor."""
    critic, actor = nn.Linear(2, 1), network()
    first = torch.optim.SGD(critic.parameters(), lr=0.01)
    second = torch.optim.SGD(actor.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(critic, optimizer=first, name="critic")
        hook.watch(actor, optimizer=second, name="actor")
        for _ in range(5):
            loss = critic.forward(torch.randn(5, 2)).square().mean()
            first.zero_grad()
            loss.backward()
            first.step()
            second.zero_grad()
            (-critic(actor(torch.randn(5, 4))).mean()).backward()
            second.step()
    found = open_run(tmp_path / "run").scalars("state")
    assert set(found["state/actor.uncleared"].values) == {0.0}
    assert "state/critic.uncleared" not in found


def test_parameters_that_no_optimizer_updates_are_ignored(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.01)  # type: ignore[index]
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    assert set(open_run(tmp_path / "run").scalars("state")["state/uncleared"].values) == {0.0}


def test_a_model_saved_or_copied_in_the_step_has_no_hook(tmp_path: Path) -> None:
    def saved(model: nn.Module) -> bytes:
        file = io.BytesIO()
        torch.save(model, file)
        return file.getvalue()

    model, plain = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        loss_of(model)
        assert saved(model) == saved(plain)
        twin = copy.deepcopy(model)
        loss_of(twin).backward()
        assert all(parameter._backward_hooks is None for parameter in twin.parameters())


def test_a_model_that_is_not_trained_in_each_step(tmp_path: Path) -> None:
    # As in WGAN: the losses of the critic add to the gradients of the generator in between.
    generator, critic = network(), nn.Linear(2, 1)
    first = torch.optim.SGD(generator.parameters(), lr=0.01)
    second = torch.optim.SGD(critic.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections={"state": SaveConfig(every=1)}) as hook:
        hook.watch(generator, optimizer=first, name="generator")
        hook.watch(critic, optimizer=second, name="critic")
        for step in range(9):
            if step % 3 == 2:
                first.zero_grad()
                (-critic(generator(torch.randn(5, 4))).mean()).backward()
                first.step()
            second.zero_grad()
            critic(generator(torch.randn(5, 4))).square().mean().backward()
            second.step()
    found = open_run(tmp_path / "run").scalars("state")
    values = {value for name in found if "uncleared" in name for value in found[name].values}
    assert values == {0.0}


def test_parameters_of_an_optimizer_that_does_not_end_the_steps_are_ignored(tmp_path: Path) -> None:
    model = network()
    head = torch.optim.SGD(model[2].parameters(), lr=0.01)  # type: ignore[index]
    body = torch.optim.SGD(model[0].parameters(), lr=0.01)  # type: ignore[index]
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=[head, body])
        for step in range(6):
            loss_of(model).backward()
            # The gradients of the head are accumulated over three steps.
            if step % 3 == 0:
                head.step()
                head.zero_grad()
            body.step()
            body.zero_grad()
    assert set(open_run(tmp_path / "run").scalars("state")["state/uncleared"].values) == {0.0}
