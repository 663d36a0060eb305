"""`updates/<parameter>`: by how much the optimizer's step has changed each parameter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.capture.hook.trainings import STEPS, TRAININGS, train
from vinedresser.capture import Collection, Hook, Run, SaveConfig, open_run

ALWAYS = SaveConfig(every=1)


def assert_update(run: Run, name: str, step: int, expected: Tensor) -> None:
    captured = run.tensor(f"updates/{name}").value(step)
    if expected.dtype == torch.bfloat16:
        assert captured.tobytes() == expected.view(torch.int16).numpy().tobytes()
    else:
        np.testing.assert_array_equal(captured, expected.numpy(), err_msg=f"{name} {step}")


@pytest.mark.thorough
@pytest.mark.parametrize("training", TRAININGS)
def test_updates_are_the_differences_of_the_weights(training: str, tmp_path: Path) -> None:
    both = {"updates": ALWAYS, "losses": ALWAYS}
    notes = train(training, lambda: Hook(tmp_path / "run", collections=both))
    plain = train(training)
    assert {name: one.tolist() for name, one in notes.final.items()} == {
        name: one.tolist() for name, one in plain.final.items()
    }
    run = open_run(tmp_path / "run")
    assert run.problems == []
    assert run.tensor("updates/" + next(iter(notes.weights[0]))).steps().tolist() == [*range(STEPS)]
    for step in range(STEPS):
        after = notes.weights[step + 1] if step + 1 < STEPS else notes.final
        for name, before in notes.weights[step].items():
            assert_update(run, name, step, after[name] - before)


def test_parameters_without_gradient_have_zero_updates_and_those_without_optimizer_none(
    tmp_path: Path,
) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[2].requires_grad_(False)
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[1].parameters()], lr=0.5)
    reductions = SaveConfig(every=1, reductions=("l2", "zero_share"))
    with Hook(tmp_path / "run", collections={"updates": reductions}) as hook:
        hook.watch(model, optimizer=optimizer)
        model[2](model[0](torch.ones(4, 3))).sum().backward()
        gradient = model.get_parameter("0.weight").grad
        assert gradient is not None
        norm = float(gradient.norm())
        optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.tensor("updates/0.weight").reduction("l2").values[0] == pytest.approx(norm / 2)
    assert run.tensor("updates/1.weight").reduction("zero_share").values.tolist() == [1.0]
    assert not [name for name in run.tensor_names(collection="updates") if "/2." in name]


def test_a_step_skipped_by_a_fused_optimizer_has_zero_updates(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with Hook(tmp_path / "run", collections={"updates": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(3):
            optimizer.zero_grad()
            value = model(torch.ones(4, 3)).sum() * (float("inf") if step == 1 else 1.0)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
    run = open_run(tmp_path / "run")
    moved = [bool(run.tensor("updates/weight").value(step).any()) for step in range(3)]
    assert moved == [True, False, True]


def test_updates_of_several_optimizers_are_those_of_their_first_step(tmp_path: Path) -> None:
    critic, generator = nn.Linear(2, 1), nn.Linear(2, 2)
    for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections={"updates": SaveConfig(every=2)})
    hook.watch(critic, optimizer=for_critic, name="critic")
    hook.watch(generator, optimizer=for_generator, name="generator")
    expected: dict[tuple[str, int], Tensor] = {}
    for step in range(3):
        for turn in range(2):
            before = critic.weight.detach().clone()
            critic(generator(torch.randn(4, 2))).square().mean().backward()
            for_critic.step()
            if turn == 0:
                expected["critic", step] = critic.weight.detach() - before
        before = generator.weight.detach().clone()
        for_generator.step()
        expected["generator", step] = generator.weight.detach() - before
    hook.close()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for name in ("critic", "generator"):
        assert run.tensor(f"updates/{name}.weight").steps().tolist() == [0, 2]
        for step in (0, 2):
            assert_update(run, f"{name}.weight", step, expected[name, step])


def test_a_collection_of_a_module_has_its_updates(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    mine = Collection(modules=(model[1],), kinds=("updates",), save=ALWAYS)
    with Hook(tmp_path / "run", collections={"mine": mine}) as hook:
        hook.watch(model, optimizer=optimizer)
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    names = sorted(open_run(tmp_path / "run").tensor_names(collection="mine"))
    assert names == ["updates/1.bias", "updates/1.weight"]
