"""Plain steps store the same data as full steps."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.capture.hook.trainings import TRAININGS, train
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.config.timetable import Timetable

ALWAYS = SaveConfig(every=1)
NUMBERS = dict.fromkeys(("losses", "metrics", "saved", "timing"), ALWAYS)
# No network has such tensors; this only disables plain steps.
LONG = NUMBERS | {"shap": ALWAYS}


def rows(path: Path) -> list[tuple[str, int, dict[str, float]]]:
    """Return mode, step and numbers of each record in the order of the run; of times, the names."""
    run = open_run(path)
    found: list[tuple[str, int, dict[str, float]]] = []
    for step in run.follow():
        assert step.tensor_names == ()
        assert step.reductions == {}
        values = {
            name: 0.0 if name.startswith("timing/") else value
            for name, value in step.scalars.items()
        }
        found.append((step.mode, step.step, values))
    assert run.problems == []
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("with_optimizer", [True, False])
def test_plain_and_full_steps_store_the_same_data(
    training: str, with_optimizer: bool, tmp_path: Path
) -> None:
    unhooked = train(training)
    for way, collections in (("short", NUMBERS), ("long", LONG)):
        hooked = partial(Hook, tmp_path / way, collections=collections)
        notes = train(training, hooked, with_optimizer=with_optimizer)
        assert notes.losses == unhooked.losses
        for name, value in unhooked.final.items():
            assert torch.equal(notes.final[name], value), name
    short, long = rows(tmp_path / "short"), rows(tmp_path / "long")
    assert short == long
    assert [step for _, step, _ in short] == list(range(len(unhooked.losses)))


def loop(hook: Hook, body: Callable[[Hook, nn.Module, int], None], *, steps: int = 12) -> None:
    """Train a small model; the body is called in each step between loss and update."""
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, loss, optimizer)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        # Some steps have several batches.
        for _ in range(1 + step % 3):
            x = torch.randn(5, 3, generator=generator)
            optimizer.zero_grad()
            loss(model(x), x[:, :2]).backward()
        body(hook, model, step)
        optimizer.step()
    hook.close()


def metrics(hook: Hook, _: nn.Module, step: int) -> None:
    hook.metric("step", step)
    hook.metric("step", step + 1)
    hook.metric("tensor", torch.tensor(0.5 * step))
    hook.metric("whole", step > 3)


def evaluation(hook: Hook, model: nn.Module, step: int) -> None:
    if step % 4 == 1:
        with hook.mode("eval"), torch.no_grad():
            hook.metric("error", model(torch.ones(2, 3)).square().mean())


def implicit_evaluation(_: Hook, model: nn.Module, step: int) -> None:
    if step % 4 == 2:
        model.eval()
        with torch.no_grad():
            nn.functional.mse_loss(model(torch.ones(2, 3)), torch.zeros(2, 2))
        model.train()


def eval_mode(_: Hook, model: nn.Module, step: int) -> None:
    # An optimizer's step ends a train step in any mode of the model.
    model.train(step % 5 < 3)


def other_forwards(_: Hook, model: nn.Module, step: int) -> None:
    if step % 3 == 0:
        with torch.no_grad():
            model(torch.ones(2, 3))


def long_mode(hook: Hook, model: nn.Module, step: int) -> None:
    with hook.mode("train"):
        model(torch.ones(2, 3))
        hook.metric("inside", step)


def after_the_last(hook: Hook, _: nn.Module, step: int) -> None:
    if step == 11:
        hook.save("text/last", float(step))


BODIES = [
    metrics, evaluation, implicit_evaluation, eval_mode, other_forwards, long_mode, after_the_last
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("body", BODIES)
def test_events_between_plain_steps_are_stored_the_same(
    body: Callable[[Hook, nn.Module, int], None], tmp_path: Path
) -> None:
    for way, collections in (("short", NUMBERS), ("long", LONG)):
        loop(Hook(tmp_path / way, collections=collections), body)
    assert rows(tmp_path / "short") == rows(tmp_path / "long")


def test_most_steps_of_the_default_rules_are_plain(
    tmp_path: Path,
) -> None:
    some = NUMBERS | {"weights": SaveConfig(every=4, reductions=("l2",))}
    each = NUMBERS | {"weights": SaveConfig(every=1, reductions=("l2",))}
    for way, collections in (("some", some), ("each", each)):
        loop(Hook(tmp_path / way, collections=collections), metrics)
    followed = (open_run(tmp_path / way).follow() for way in ("some", "each"))
    for ours, theirs in zip(*followed, strict=True):
        assert (ours.step, ours.mode) == (theirs.step, theirs.mode)
        assert ours.scalars.keys() == theirs.scalars.keys()
        for name, value in ours.scalars.items():
            assert name.startswith("timing/") or value == theirs.scalars[name], name
        assert ours.reductions == (theirs.reductions if ours.step % 4 == 0 else {})


def test_an_unfinished_step_keeps_only_user_values(tmp_path: Path) -> None:
    for way, collections in (("short", NUMBERS), ("long", LONG)):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Hook(tmp_path / way, collections=collections) as hook:
            hook.watch(model, nn.MSELoss(), optimizer)
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            hook.metric("late", 2.5)
        with Hook(tmp_path / f"{way}-nothing", collections=collections) as hook:
            hook.watch(model, nn.MSELoss(), optimizer)
            model(torch.ones(2, 3))
    assert rows(tmp_path / "short") == rows(tmp_path / "long")
    assert rows(tmp_path / "short")[-1] == ("train", 1, {"metrics/late": 2.5})
    assert rows(tmp_path / "short-nothing") == rows(tmp_path / "long-nothing") == []


def test_a_custom_loop(tmp_path: Path) -> None:
    for way, collections in (("short", NUMBERS), ("long", LONG)):
        with Hook(tmp_path / way, collections=collections) as hook:
            for step in range(6):
                values: dict[str, float | Tensor] = {"a": step / 3, "b": torch.tensor(1.0 * step)}
                hook.step(loss=1.0 / (step + 1), metrics=values, inputs=np.ones((2, 3)))
                if step == 3:
                    with hook.mode("eval"):
                        hook.step(loss=0.5)
    assert rows(tmp_path / "short") == rows(tmp_path / "long")
    assert rows(tmp_path / "short")[1][2]["losses/loss"] == 0.5


FOREVER = """
import itertools, sys, time
import torch
from vinedresser.capture import Hook, SaveConfig

torch.set_num_threads(1)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
hook = Hook(sys.argv[1], collections={"timing": SaveConfig(every=1)})
loss_fn = hook.loss(lambda value, step: value.sum() * 0 + step, "number")
hook.watch(model, optimizer=optimizer)
for step in itertools.count():
    loss_fn(model(torch.ones(4, 3)), step).backward()
    optimizer.step()
    print(step, time.time(), flush=True)
    time.sleep(1e-3)
"""


@pytest.mark.thorough
def test_a_kill_loses_no_more_numbers_than_other_data(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FOREVER, str(tmp_path / "run")]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    # Segments are written every second; the third is due.
    while not (tmp_path / "run" / "index" / "0" / f"{1:012}.json").exists():
        assert trainer.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    trainer.kill()
    killed = time.time()
    output, _ = trainer.communicate()
    lines = [line.split() for line in output.splitlines(keepends=True) if line.endswith("\n")]
    ended = {int(step): float(at) for step, at in lines}
    run = open_run(tmp_path / "run")
    stored = list(run.follow())
    assert run.problems == []
    assert run.status.state == "dead"
    # All steps up to a recent one: a second ago, plus delays of a busy machine.
    assert [step.step for step in stored] == list(range(len(stored)))
    assert all(step.scalars["losses/number"] == step.step for step in stored)
    lost = [at for step, at in ended.items() if step >= len(stored)]
    assert min(lost, default=killed) > killed - 3


SAVES = (
    SaveConfig(every=5, stop=2000),
    SaveConfig(every=25, start=2000),
    SaveConfig(every=20, start=7, stop=400),
    SaveConfig(every=0, steps=(3, 3999, 400)),
    SaveConfig(every=3, start=10, steps=(2,), modes=("eval", "train")),
    SaveConfig(every=1, modes=("eval",)),
    SaveConfig(every=1, start=90, stop=110),
)


@pytest.mark.thorough
def test_the_timetable_agrees_with_the_save_configs() -> None:
    def slowly(step: int) -> tuple[bool, ...]:
        return tuple(save.due(step, "train") for save in SAVES)

    asked: list[int] = []

    def work_out(step: int) -> tuple[bool, ...]:
        asked.append(step)
        return slowly(step)

    table = Timetable(SAVES, work_out)
    order = [*range(4100), *range(4100, 0, -7)]
    assert [table.at(step) for step in order] == [slowly(step) for step in order]
    assert len(set(asked)) < 100


def test_a_predicate_is_called_at_every_step() -> None:
    often = SaveConfig(every=1, when=lambda step, _: step in (3, 8))
    config = CaptureConfig.of({"losses": often, "metrics": SaveConfig(every=2)})
    due = [list(config.due(step, "train").collections()) for step in range(9)]
    assert [step for step, names in enumerate(due) if "losses" in names] == [3, 8]
    assert [step for step, names in enumerate(due) if "metrics" in names] == [0, 2, 4, 6, 8]
