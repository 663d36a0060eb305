"""Defects of the predecessor, one by one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import StopRecord, index_key, segment_key, write_record

ALWAYS = SaveConfig(every=1)
KINDS = ("inputs", "outputs", "weights", "biases", "gradients", "losses")


def step_on(tmp_path: Path, model: nn.Module, forward: Callable[[], Tensor]) -> Run:
    """Take one step of a model with everything captured, without problems."""
    hook = Hook(tmp_path / "run", collections=dict.fromkeys(KINDS, ALWAYS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    forward().sum().backward()
    optimizer.step()
    hook.close()
    assert hook.problems == []
    return open_run(tmp_path / "run")


def test_an_in_place_layer_keeps_its_captured_input(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ELU(1.0, True)
    )
    x = torch.randn(5, 3)
    with torch.no_grad():
        first = model[0](x)
        relu = first.relu()
        second = model[2](relu)
    assert (first < 0).any()
    run = step_on(tmp_path, model, lambda: model(x))
    expected = {
        "inputs/1": first,
        "outputs/0": first,
        "inputs/2": relu,
        "outputs/1": relu,
        "inputs/3": second,
        "outputs/2": second,
        "outputs/3": nn.functional.elu(second),
    }
    for name, tensor in expected.items():
        np.testing.assert_array_equal(run.tensor(name).value(0), tensor.detach(), err_msg=name)


@pytest.mark.parametrize("way", ["model", "autocast"])
def test_bf16_does_not_crash_the_training(way: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    if way == "model":
        model, x = model.bfloat16(), x.bfloat16()

    def forward() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            out: Tensor = model(x)
        return out.float()

    run = step_on(tmp_path, model, forward)
    output = run.tensor("outputs/0")
    assert output.dtype.name == "bfloat16"
    # The reference is the same layer in float64; bfloat16 has 8 significant bits.
    weight, bias = (
        run.tensor(name).value(0).astype(np.float64)
        for name in ("weights/0.weight", "biases/0.bias")
    )
    expected = x.double().numpy() @ weight.T + bias
    np.testing.assert_allclose(output.value(0).astype(np.float64), expected, rtol=0.02, atol=0.02)
    assert run.tensor("gradients/0.weight").value(0).any()


def test_the_mean_of_integer_labels_does_not_crash_the_training(tmp_path: Path) -> None:
    model, loss = nn.Linear(2, 3), nn.CrossEntropyLoss()
    means = SaveConfig(every=1, reductions=("mean", "std", "l2"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections={"labels": means, "saved": means})
    hook.watch(model, loss, optimizer)
    labels = torch.tensor([0, 2, 1, 2])
    loss(model(torch.ones(4, 2)), labels).backward()
    hook.save("labels", labels)
    optimizer.step()
    hook.close()
    assert hook.problems == []
    for name in ("labels/CrossEntropyLoss", "saved/labels"):
        view = open_run(tmp_path / "run").tensor(name)
        assert view.reduction("mean").values.tolist() == [1.25]
        assert view.reduction("std").values.tolist() == [pytest.approx(np.std([0, 2, 1, 2]))]


class Odd(nn.Module):
    """A module with keyword arguments and nested inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor, *, scale: Tensor, pair: Any) -> dict[str, Any]:
        y = self.inner(x) * scale
        return {"hidden": y, "deep": (pair[0] + 1, [pair[1][0] * 2])}


def test_dictionaries_keywords_and_nested_tuples_are_captured(tmp_path: Path) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: Tensor) -> Tensor:
            found = self.odd(x, scale=torch.full((1,), 3.0), pair=(x, (x + 5,)))
            out: Tensor = found["hidden"]
            return out

    model = Outer()
    x = torch.tensor([[1.0, 2.0]])
    run = step_on(tmp_path, model, lambda: model(x))
    expected = {
        "outputs/odd[deep][0]": x + 1,
        "outputs/odd[deep][1][0]": (x + 5) * 2,
        "inputs/odd[scale]": torch.full((1,), 3.0),
        "inputs/odd[pair][0]": x,
        "inputs/odd[pair][1][0]": x + 5,
    }
    assert {*expected, "outputs/odd[hidden]"} <= set(run.tensor_names())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(run.tensor(name).value(0), tensor.numpy(), err_msg=name)


def test_micro_batches_are_one_step_with_the_whole_gradient(tmp_path: Path) -> None:
    model, loss = nn.Linear(2, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=dict.fromkeys(KINDS, ALWAYS))
    hook.watch(model, loss, optimizer)
    batches = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)]
    x, y = (torch.cat(both) for both in zip(*batches, strict=True))
    (expected,) = torch.autograd.grad(
        loss(nn.functional.linear(x, *model.parameters()), y), [model.weight]
    )
    for x, y in batches:
        (loss(model(x), y) / 3).backward()
    optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0]
    captured = run.tensor("gradients/weight").value(0)
    np.testing.assert_allclose(captured, expected.numpy(), rtol=1e-5)


def test_a_step_is_readable_once_it_has_ended(tmp_path: Path) -> None:
    model, loss = nn.Linear(2, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run") as hook:
        hook.watch(model, loss, optimizer)
        for step in range(3):
            value = loss(model(torch.ones(1, 2)), torch.zeros(1, 1))
            value.backward()
            optimizer.step()
            assert hook.flush(timeout=30)
            # The next step has not begun.
            column = open_run(tmp_path / "run").scalars("losses")["losses/MSELoss"]
            assert column.steps.tolist() == list(range(step + 1))
            assert column.values[-1] == pytest.approx(value.item())


FOREVER = """
import os, sys, time
import torch
from torch import nn
from vinedresser.capture import Hook, SaveConfig

how = sys.argv[2]
model, loss = nn.Linear(2, 1), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = Hook(sys.argv[1]).watch(model, loss, optimizer)
step = 0
while True:
    optimizer.zero_grad()
    loss(model(torch.ones(1, 2)), torch.zeros(1, 1)).backward()
    optimizer.step()
    step += 1
    if step == 3:
        hook.flush()
        print("ready", flush=True)
        sys.stdin.readline()
        if how == "crashed":
            raise ValueError("no data left")
        if how == "finished":
            break
"""


def ended(path: Path, how: str) -> float:
    """Run a training to its end; return the seconds until a reader noticed."""
    with subprocess.Popen(
        [sys.executable, "-c", FOREVER, path, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        steps = open_run(path).follow()
        assert [next(steps).step for _ in range(3)] == [0, 1, 2]
        if how == "killed":
            process.kill()
        elif how == "stopped":
            stop = StopRecord(by="person", reason="seen enough", time=time.time())
            write_record(LocalStorage(path), stop)
            process.send_signal(signal.SIGTERM)
        if how != "killed":
            process.stdin.write("\n")
            process.stdin.flush()
        process.wait(timeout=60)
        since = time.monotonic()
        for _ in steps:
            pass
        return time.monotonic() - since


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("killed", "dead", "no process runs it and no exit was recorded"),
        ("crashed", "crashed", "ValueError: no data left"),
        ("stopped", "stopped", "seen enough"),
        ("finished", "finished", "without an error"),
    ],
)
def test_readers_notice_the_end_of_a_run_within_seconds_and_its_state(
    how: str, state: str, reason: str, tmp_path: Path
) -> None:
    assert ended(tmp_path / "run", how) < 5
    status = open_run(tmp_path / "run").status
    assert status.state == state
    assert reason in status.reason


def three_steps(path: Path) -> None:
    """Write a run of three segments with one step each."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections={"weights": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            hook.flush()


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    three_steps(tmp_path / "run")
    segment = tmp_path / "run" / segment_key(0, 1)
    content = bytearray(segment.read_bytes())
    content[-5] ^= 0x10
    segment.chmod(0o644)
    segment.write_bytes(content)
    view = open_run(tmp_path / "run").tensor("weights/weight")
    with pytest.raises(CorruptData):
        view.value(1)
    assert view.value(0).shape == view.value(2).shape == (2, 4)


def test_a_truncated_index_record_loses_only_its_own_step(tmp_path: Path) -> None:
    three_steps(tmp_path / "run")
    index = tmp_path / "run" / index_key(0, 1)
    content = index.read_bytes()
    index.chmod(0o644)
    index.write_bytes(content[: len(content) // 2])
    run = open_run(tmp_path / "run")
    view = run.tensor("weights/weight")
    assert view.steps().tolist() == [0, 2]
    assert view.value(2).shape == (2, 4)
    (problem,) = run.problems
    assert index_key(0, 1) in problem


def test_a_pattern_without_a_match_is_reported_once_with_the_nearest_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    wrong = Collection(regex=r"gradients/0\.wieght", save=ALWAYS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections={"mine": wrong}) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            assert len(hook.problems) == 1, step
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "mine matched nothing at step 0" in said
    assert "gradients/0.weight" in said


PROGRAM = "import sys; from vinedresser.capture import Hook; Hook(sys.argv[1]).metric('a', 1.0)"


@pytest.mark.thorough
def test_processes_of_one_script_never_write_into_the_same_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    # One process creates the run; the other creates a run beside it and says so.
    assert "".join(said).count("already holds a run; this one is in") == 1
    for name in ("run", "run-2"):
        run = open_run(tmp_path / name)
        assert run.problems == []
        assert run.scalars("metrics")["metrics/a"].values.tolist() == [1.0]
