"""Capture errors are reported once and do not affect the training."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.hook.trainings import EVERYTHING
from tests.warm_python import TORCH
from vinedresser.capture import Collection, Hook, SaveConfig, open_run

# Prints the loss of every step and the weights at the end; with a second argument, through a hook
# whose store takes no more than that many bytes a file.
PROGRAM = """
import resource, sys
import torch
from torch import nn
from vinedresser.capture import Hook, SaveConfig

torch.set_num_threads(1)
torch.manual_seed(0)
model, loss = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 1)), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if len(sys.argv) > 1:
    collections = {"weights": SaveConfig(every=3)}
    hook = Hook(sys.argv[1], collections=collections).watch(model, loss, optimizer)
    limit = int(sys.argv[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for i in range(8):
    optimizer.zero_grad()
    value = loss(model(torch.randn(16, 100)), torch.randn(16, 1))
    value.backward()
    optimizer.step()
    print(value.item())
    if len(sys.argv) > 1:
        hook.flush()
print(*(parameter.sum().item() for parameter in model.parameters()))
"""


def run_program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return TORCH.run(["-c", PROGRAM, *arguments], folder, os.environ)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints without a hook."""
    return run_program(tmp_path_factory.mktemp("plain")).stdout


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 200 KiB, too small for a full step of the program."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def check_unharmed(run: Path, limit: int, plain: str) -> list[str]:
    """Train into a run, check the training and the run; return the reported problems."""
    done = run_program(run.parent, str(run), str(limit))
    assert done.returncode == 0
    assert done.stdout == plain
    reports = done.stderr.splitlines()
    assert all(report.startswith("vinedresser: ") for report in reports)
    assert len(set(reports)) == len(reports)
    opened = open_run(run)
    for name in opened.tensor_names():
        for step in opened.tensor(name).steps():
            opened.tensor(name).value(int(step))
    return reports


@pytest.mark.thorough
def test_a_file_size_limit_does_no_harm(tmp_path: Path, plain: str) -> None:
    (report,) = check_unharmed(tmp_path / "run", 50_000, plain)
    assert "too large" in report
    assert report.endswith("training continues")
    run = open_run(tmp_path / "run")
    # Steps with weights are too large; all steps with only a loss are stored.
    assert run.steps("train").tolist() == [1, 2, 4, 5, 7]
    assert run.status.state == "finished"


@pytest.mark.thorough
def test_a_full_disk_does_no_harm(small_disk: Path, plain: str) -> None:
    reports = check_unharmed(small_disk / "run", 0, plain)
    assert "No space left" in reports[0]
    # Earlier steps are stored.
    assert open_run(small_disk / "run").tensor("weights/0.weight").steps().tolist()[0] == 0


class Odd(nn.Module):
    """Returns tensors that safetensors can and cannot store."""

    def __init__(self) -> None:
        super().__init__()
        self.good = nn.Linear(2, 2)
        self.odd = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.good(x)
        self.odd(y.detach().to(torch.complex128))
        return y


def test_a_tensor_that_cannot_be_stored_is_reported_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections={"outputs": SaveConfig(every=1)})
    hook.watch(model, optimizer=optimizer)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    hook.close()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert re.search(r"outputs/odd: TypeError: .*torch\.complex128", said)
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == ["outputs/good", "outputs/Odd"]
    assert run.tensor("outputs/Odd").steps().tolist() == [0, 1, 2]


def test_a_forward_that_raises_leaves_no_hooks_behind(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=EVERYTHING).watch(model, optimizer=optimizer)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.ones(1, 3))
    assert not any(module._forward_hooks for module in model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not any(module._forward_hooks for module in model.modules())
    hook.close()
    assert hook.problems == []


def test_a_collection_that_matches_nothing_is_reported_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.register_module("relu1", nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections = {
        "relus": Collection(regex=r"outputs/rellu\d", save=SaveConfig(every=1)),
        "linear": Collection(regex=r"^gradients/0\.", save=SaveConfig(every=1)),
        "later": Collection(regex="nothing", save=SaveConfig(every=1, start=1)),
        "evaluated": Collection(regex="outputs/1", save=SaveConfig(modes=("eval",))),
    }
    hook = Hook(tmp_path / "run", collections=collections).watch(model, optimizer=optimizer)
    model.eval()
    model(torch.ones(1, 2))
    model.train()
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    hook.close()
    first, second = capfd.readouterr().err.splitlines()
    assert "collection relus matched nothing at step 0 (train)" in first
    assert "did you mean outputs/relu1" in first
    assert "collection later matched nothing at step 1 (train)" in second
    assert "gradients/0.bias" in second
    run = open_run(tmp_path / "run")
    assert run.tensor_names(collection="linear") == ["gradients/0.weight", "gradients/0.bias"]


def test_a_second_optimizer_is_reported(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    elsewhere = nn.Linear(1, 1)
    first, second, foreign = (
        torch.optim.SGD(module.parameters(), lr=0.1) for module in (model[0], model[1], elsewhere)
    )
    hook = Hook(tmp_path / "run").watch(model, nn.MSELoss())
    for _ in range(2):
        foreign.step()
        first.step()
        second.step()
    hook.metric("steps", 1.0)
    hook.close()
    (problem,) = hook.problems
    assert problem.startswith("a second optimizer, SGD, updates the watched model")
    assert open_run(tmp_path / "run").scalars()["metrics/steps"].steps.tolist() == [2]


def test_a_removed_run_directory_is_reported_once_and_not_created_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, loss = nn.Linear(2, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "runs" / "one", collections=EVERYTHING)
    hook.watch(model, loss, optimizer)
    for step in range(6):
        loss(model(torch.ones(1, 2)), torch.zeros(1, 1)).backward()
        optimizer.step()
        hook.flush()
        if step == 2:
            shutil.rmtree(tmp_path / "runs")
    hook.close()
    assert not (tmp_path / "runs").exists()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"vinedresser: {tmp_path}/runs/one: the run directory was removed")
    assert line.endswith("training continues")


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    model, loss = nn.Linear(2, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=EVERYTHING).watch(model, loss, optimizer)

    def step() -> None:
        loss(model(torch.ones(1, 2)), torch.zeros(1, 1)).backward()
        optimizer.step()

    step()
    child = os.fork()
    if not child:
        step()
        hook.metric("child", 1.0)
        hook.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    step()
    hook.close()
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1]
    assert run.scalar_names() == ["losses/MSELoss"]
    assert run.status.state == "finished"


def test_steps_that_a_full_queue_drops_are_counted(tmp_path: Path) -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=EVERYTHING, policy="drop")
    hook.watch(model, optimizer=optimizer)
    for _ in range(50):
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
    hook.close()
    # Far from the limit of the queue, no step is dropped.
    assert len(open_run(tmp_path / "run").steps("train")) == 50
