"""Several models and several optimizers in one training."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.capture.torch_.notes import ALL, STEPS, Notes
from vinedresser.capture import Hook, open_run
from vinedresser.errors import ConfigError


def adversarial(hook: Hook | None, notes: Notes, critic_steps: int = 1) -> list[Tensor]:
    """Train a generator and a critic, which may take several steps per generator step."""
    torch.manual_seed(2)
    generator = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(True), nn.Linear(4, 3))
    critic = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2, True), nn.Linear(4, 1))
    on_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    on_generator = torch.optim.Adam(generator.parameters(), lr=0.02)
    judged, made = nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss()
    if hook is not None:
        hook.watch(critic, judged, on_critic, name="critic")
        hook.watch(generator, made, on_generator, name="generator")
    for step in range(STEPS):
        for _ in range(critic_steps):
            with torch.no_grad():
                fake = generator(torch.randn(6, 2))
            on_critic.zero_grad()
            judged(critic(torch.randn(6, 3)), torch.ones(6, 1)).backward()
            judged(critic(fake), torch.zeros(6, 1)).backward()
            notes.of(step, "critic.", critic)
            on_critic.step()
        noise = torch.randn(6, 2)
        notes.note(step, "inputs/generator.0", noise)
        notes.note(step, "buffers/generator.1.running_mean", generator.get_buffer("1.running_mean"))
        on_generator.zero_grad()
        made(critic(generator(noise)), torch.ones(6, 1)).backward()
        notes.of(step, "generator.", generator)
        on_generator.step()
    models = (generator, critic)
    return [
        torch.get_rng_state(),
        *(parameter.detach() for model in models for parameter in model.parameters()),
    ]


@pytest.mark.parametrize("critic_steps", [1, 3])
def test_a_generator_and_its_critic(critic_steps: int, tmp_path: Path) -> None:
    plain = adversarial(None, Notes(), critic_steps)
    notes = Notes()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hooked = adversarial(hook, notes, critic_steps)
    assert hook.problems == []
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    notes.check(run)
    assert set(run.scalars("losses")) == {
        "losses/critic.BCEWithLogitsLoss",
        "losses/generator.BCEWithLogitsLoss",
    }
    columns = run.scalars("optimizer_state")
    assert set(columns["optimizer_state/critic.lr"].values) == {0.01}
    assert set(columns["optimizer_state/generator.lr"].values) == {0.02}
    # The first forward of each, with its gradients.
    assert run.tensor("outputs/critic").shape == (6, 1)
    assert run.tensor("outputs/generator").steps().tolist() == list(range(STEPS))
    taken = columns["optimizer_state/critic.0.weight.step"].values.tolist()
    assert taken == [critic_steps * step for step in range(1, STEPS)]


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decoder(self.encoder(x)) * self.scale
        return out


def code(
    watch: Callable[[Coder, list[torch.optim.Optimizer]], Hook | None], notes: Notes
) -> list[Tensor]:
    """Train each part of a model by its own optimizer, and one parameter by none."""
    model = Coder()
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.SGD(model.encoder.parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam(model.decoder.parameters(), lr=0.01),
    ]
    hook = watch(model, optimizers)
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model.scale.grad = None
        x = torch.randn(5, 4)
        (model(x) - x).square().mean().backward()
        notes.of(step, "", model)
        for optimizer in optimizers:
            optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [torch.get_rng_state(), *(parameter.detach() for parameter in model.parameters())]


@pytest.mark.parametrize("form", [list, tuple])
def test_two_optimizers_of_one_model(form: Callable[[Any], Any], tmp_path: Path) -> None:
    plain = code(lambda model, optimizers: None, Notes())
    notes = Notes()
    hook = Hook(tmp_path / "run", collections=ALL)
    hooked = code(lambda model, both: hook.watch(model, optimizer=form(both)), notes)
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    # Also for the parameter without an optimizer.
    assert ("gradients/scale", 0) in notes.tensors
    notes.check(run)
    columns = run.scalars("optimizer_state")
    assert columns["optimizer_state/lr"].values.tolist() == [0.1] * STEPS
    assert columns["optimizer_state/lr[1]"].values.tolist() == [0.01] * STEPS
    assert run.tensor("optimizer_state/encoder.weight.momentum_buffer").steps().tolist() == [
        1,
        2,
        3,
    ]
    assert run.tensor("optimizer_state/decoder.bias.exp_avg").steps().tolist() == [1, 2, 3]


def test_an_optimizer_that_was_not_passed_is_found(tmp_path: Path) -> None:
    notes = Notes()
    hook = Hook(tmp_path / "run", collections=ALL)
    code(lambda model, both: hook.watch(model, optimizer=both[1]), notes)
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    notes.check(run)


def test_the_first_found_optimizer_ends_the_step_and_the_second_is_reported(tmp_path: Path) -> None:
    model = Coder()
    optimizers = [
        torch.optim.SGD(one.parameters(), lr=0.1) for one in (model.encoder, model.decoder)
    ]
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model)
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    (problem,) = hook.problems
    assert "a second optimizer, SGD" in problem
    assert open_run(tmp_path / "run").steps("train").tolist() == [0, 1, 2]


@pytest.mark.thorough
def test_all_optimizers_are_recreated(tmp_path: Path) -> None:
    model = Coder()

    def make() -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model.encoder, model.decoder)]

    optimizers = make()
    notes = Notes()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, optimizer=optimizers)
        for step in range(6):
            if step % 2:
                del optimizers
                gc.collect()
                optimizers = make()
            model.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            notes.of(step, "", model)
            for optimizer in optimizers:
                optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(6))
    notes.check(run)


@pytest.mark.thorough
def test_the_last_optimizer_is_deleted_and_another_remains(tmp_path: Path) -> None:
    model = Coder()
    first = torch.optim.SGD(model.encoder.parameters(), lr=0.1)
    last = torch.optim.SGD(model.decoder.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, optimizer=[first, last])
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
            first.step()
            last.step()
        del last
        gc.collect()
        for _ in range(4):
            model(torch.ones(1, 4)).sum().backward()
            first.step()
    # The step without an end became part of the next one.
    assert open_run(tmp_path / "run").steps("train").tolist() == [0, 1, 2, 3, 4]


def test_one_optimizer_of_two_models(tmp_path: Path) -> None:
    torch.manual_seed(1)
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
    groups: list[dict[str, Any]] = [
        {"params": encoder.parameters()},
        {"params": decoder.parameters(), "lr": 0.2},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    notes = Notes()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(encoder, optimizer=optimizer, name="encoder").watch(decoder, name="decoder")
        for step in range(3):
            optimizer.zero_grad()
            decoder(encoder(torch.ones(2, 4))).square().sum().backward()
            notes.of(step, "encoder.", encoder)
            notes.of(step, "decoder.", decoder)
            optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1, 2]
    notes.check(run)
    columns = run.scalars("optimizer_state")
    assert set(columns["optimizer_state/encoder.lr"].values) == {0.1}
    assert set(columns["optimizer_state/decoder.lr[1]"].values) == {0.2}
    # The tensor between the two models is stored once.
    np.testing.assert_array_equal(
        run.tensor("inputs/decoder").value(2), run.tensor("outputs/encoder").value(2)
    )


def distil(hook: Hook | None, notes: Notes) -> list[Tensor]:
    """Train a student on its teacher, and evaluate an average of it."""
    torch.manual_seed(4)
    teacher = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()).eval()
    student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
    average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer, loss = torch.optim.SGD(student.parameters(), lr=0.1), nn.MSELoss()
    if hook is not None:
        hook.watch(student, loss, optimizer, name="student")
        hook.watch(teacher, name="teacher").watch(average, name="average")
    for step in range(STEPS):
        x = torch.randn(6, 3)
        with torch.no_grad():
            wanted = teacher(x)
        notes.note(step, "outputs/teacher", wanted)
        notes.note(step, "weights/teacher.0.weight", teacher.get_parameter("0.weight"))
        optimizer.zero_grad()
        loss(student(x), wanted).backward()
        notes.of(step, "student.", student)
        optimizer.step()
        # At the end of the step it is not yet updated.
        notes.note(step, "weights/average.0.weight", average.get_parameter("module.0.weight"))
        notes.note(
            step, "buffers/average.1.running_var", average.get_buffer("module.1.running_var")
        )
        average.update_parameters(student)
        if hook is not None and step == 1:
            with hook.mode("eval"), torch.no_grad():
                loss(average(x), wanted)
    models = (student, average)
    return [
        torch.get_rng_state(),
        *(parameter.detach() for model in models for parameter in model.parameters()),
    ]


def test_models_that_are_watched_but_not_updated(tmp_path: Path) -> None:
    plain = distil(None, Notes())
    notes = Notes()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hooked = distil(hook, notes)
    assert hook.problems == []
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    # The teacher is not an evaluation; the average is one in its block.
    assert run.steps("eval").tolist() == [2]
    notes.check(run)
    assert run.tensor("outputs/average").steps("eval").tolist() == [2]
    assert not [name for name in run.tensor_names(collection="gradients") if "student" not in name]


def test_an_evaluation_of_two_models(tmp_path: Path) -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    both = nn.ModuleList(models)
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        for number, model in enumerate(models):
            hook.watch(model, optimizer=optimizer, name=f"m{number}")
        for model in models:
            model.eval()
        with torch.no_grad():
            for batch in range(2):
                models[1](models[0](torch.full((1, 2), float(batch))))
        for model in models:
            model.train()
        models[1](models[0](torch.ones(1, 2))).sum().backward()
        optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for name in ("outputs/m0", "outputs/m1", "weights/m0.weight", "weights/m1.weight"):
        assert run.tensor(name).steps("eval").tolist() == [0], name
        assert run.tensor(name).steps("train").tolist() == [0], name
    assert run.tensor("inputs/m0").value(0, mode="eval").tolist() == [[0.0, 0.0]]


def test_an_object_that_is_not_an_optimizer_is_rejected(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run") as hook:
        for wrong in ("sgd", [optimizer, "sgd"], copy.copy):
            with pytest.raises(ConfigError, match=r"not a torch\.optim\.Optimizer"):
                hook.watch(model, optimizer=wrong)
        hook.watch(model, optimizer=[])
    assert hook.problems == []
