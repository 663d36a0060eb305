"""Data-parallel trainings: each rank writes what its own optimizer consumed, into its own shard."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from tests.capture.torch_.parallel.ddp_training import (
    STEPS,
    TRAININGS,
    TwoHeads,
    batch,
    plain_model,
)
from tests.capture.torch_.parallel.ranks import ROOT, rank_environment, run_ranks, started_ranks
from tests.waiting import until
from vinedresser.capture import Hook, open_run
from vinedresser.capture.run.environment import Environment
from vinedresser.errors import ConfigError, SecondWriter
from vinedresser.store.reading.reader import Run

RANKS = (0, 1)

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which two ranks have done all trainings."""
    folder = tmp_path_factory.mktemp("ddp")
    errors = run_ranks("tests.capture.torch_.parallel.ddp_training", folder)
    assert "vinedresser: " not in "".join(errors)
    return folder


@pytest.fixture(params=TRAININGS)
def training(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load_weights(model: nn.Module, run: Run, step: int) -> nn.Module:
    """Give a model in float64 the weights that were captured before a step."""
    twin = copy.deepcopy(model).double()
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            kind = "biases" if "bias" in name else "weights"
            parameter.copy_(torch.tensor(run.tensor(f"{kind}/{name}").value(step)))
    return twin


def joint_gradients(
    twin: nn.Module, forward: Callable[[int, Tensor], Tensor], step: int, micros: int
) -> dict[str, Tensor | None]:
    """Return the gradients of the mean loss over the batches of all ranks, in float64.

    Batch normalisation is over each rank's batch by itself, as it is under data parallelism.
    """
    losses = []
    for rank in RANKS:
        for micro in range(micros):
            x, y = batch(step, rank, micro)
            losses.append(nn.functional.cross_entropy(forward(rank, x.double()), y))
    torch.stack(losses).mean().backward()
    return {name: parameter.grad for name, parameter in twin.named_parameters()}


def check_gradients(run: Run, step: int, expected: dict[str, Tensor | None]) -> None:
    for name, gradient in expected.items():
        view = run.tensor(f"gradients/{name}")
        if gradient is None:
            continue
        one, other = (view.value(step, rank=rank) for rank in RANKS)
        assert one.tobytes() == other.tobytes(), name
        np.testing.assert_allclose(one, gradient.numpy(), rtol=2e-4, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("training", ["plain", "accumulated", "compiled"])
def test_gradients_are_those_of_the_joint_batch(training: str, trained: Path) -> None:
    run = open_run(trained / training)
    for step in range(STEPS):
        twin = load_weights(plain_model(), run, step)
        micros = 2 if training == "accumulated" else 1

        def forward(rank: int, x: Tensor, twin: nn.Module = twin) -> Tensor:
            out: Tensor = twin(x)
            return out

        expected = joint_gradients(twin, forward, step, micros)
        check_gradients(run, step, expected)


def test_gradients_of_parameters_used_by_one_rank_only(trained: Path) -> None:
    run = open_run(trained / "unused")
    for step in range(STEPS):
        twin = load_weights(TwoHeads(), run, step)
        assert isinstance(twin, TwoHeads)

        def forward(rank: int, x: Tensor, step: int = step, twin: TwoHeads = twin) -> Tensor:
            twin.which = rank if step % 2 else 0
            out: Tensor = twin(x)
            return out

        check_gradients(run, step, joint_gradients(twin, forward, step, 1))
    # If no rank used the second head, its optimizer consumes nothing.
    used = run.tensor("gradients/heads.1.weight")
    outputs = run.tensor("outputs/heads.1")
    assert used.steps(rank=0).tolist() == used.steps(rank=1).tolist() == [1, 3]
    assert outputs.steps(rank=0).tolist() == []
    assert outputs.steps(rank=1).tolist() == [1, 3]


def test_the_training_is_bit_identical(training: str, trained: Path) -> None:
    for rank in RANKS:
        plain, hooked = (
            load_file(trained / f"{training}-{way}-{rank}.safetensors")
            for way in ("plain", "hooked")
        )
        assert {name: value.tobytes() for name, value in hooked.items()} == {
            name: value.tobytes() for name, value in plain.items()
        }


def test_each_rank_writes_every_step_under_the_users_own_names(
    training: str, trained: Path
) -> None:
    run = open_run(trained / training)
    assert run.info.world_size == len(RANKS)
    assert run.ranks == RANKS
    assert run.problems == []
    assert run.status.state == "finished"
    for rank in RANKS:
        assert run.steps("train", rank=rank).tolist() == list(range(STEPS))
    names = run.tensor_names()
    assert not [name for name in names if "module" in name or "_orig_mod" in name]
    inner = TwoHeads() if training == "unused" else plain_model()
    expected = {name for name, _ in inner.named_parameters()}
    assert {name.removeprefix("gradients/") for name in names if "gradients/" in name} == expected


def test_each_rank_has_its_own_outputs_losses_and_buffers(trained: Path) -> None:
    run = open_run(trained / "plain")
    for name in ("outputs/0", "buffers/1.running_mean"):
        one, other = (run.tensor(name).value(2, rank=rank) for rank in RANKS)
        assert one.shape == other.shape
        assert not np.array_equal(one, other)
    losses = [run.scalars("losses", rank=rank)["losses/CrossEntropyLoss"] for rank in RANKS]
    assert losses[0].values.tolist() != losses[1].values.tolist()
    twin = load_weights(plain_model(), run, 1)
    for rank in RANKS:
        x, y = batch(1, rank)
        assert isinstance(twin, nn.Sequential)
        first = twin[0](x.double()).detach().numpy()
        captured = run.tensor("outputs/0").value(1, rank=rank)
        np.testing.assert_allclose(captured, first, rtol=1e-4, atol=1e-6)
        loss = nn.functional.cross_entropy(twin(x.double()), y).item()
        assert losses[rank].values[1] == pytest.approx(loss, rel=1e-5)


def test_readers_follow_all_ranks_in_the_same_order(trained: Path) -> None:
    run = open_run(trained / "plain")
    seen = [(step.step, step.rank) for step in run.follow() if step.mode == "train"]
    assert seen == [(step, rank) for step in range(STEPS) for rank in RANKS]


@pytest.mark.slow
def test_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "from torch import nn\n"
        "from vinedresser.capture import Hook, SaveConfig\n"
        "dist.init_process_group('gloo')\n"
        "torch.manual_seed(0)\n"
        "model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "hook = Hook(sys.argv[1], collections={'gradients': SaveConfig(every=1)})\n"
        "hook.watch(model, optimizer=optimizer)\n"
        "for step in range(2):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.full((4, 2), float(dist.get_rank()))).sum().backward()\n"
        "    optimizer.step()\n"
        "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, script, tmp_path / "run"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    assert run.ranks == RANKS
    for rank in RANKS:
        # Four rows of zeros on one rank and of ones on the other, and the mean over both.
        assert run.tensor("gradients/weight").value(1, rank=rank).tolist() == [[2.0, 2.0]]


def test_a_killed_rank_is_reported_within_seconds(tmp_path: Path) -> None:
    begun = [tmp_path / f"pid-{rank}" for rank in RANKS]
    with started_ranks("tests.capture.torch_.parallel.ddp_training", tmp_path, "die") as ended:
        until(lambda: all(path.exists() for path in begun) or ended.done(), "both ranks train")
        survivor, victim = (int(path.read_text(encoding="utf-8")) for path in begun)
        until(lambda: not psutil.pid_exists(victim), "rank 1 is dead")
        deadline = time.monotonic() + 5
        while "rank 1 is gone" not in (status := open_run(tmp_path / "run").status).reason:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # The other rank is alive, so the run is.
        assert status.state == "running"
        os.kill(survivor, signal.SIGKILL)
        assert ended.result(60).stderr == "exit codes of the ranks: [-9, -9]\n"
        started = time.monotonic()
        steps = [(step.step, step.rank) for step in open_run(tmp_path / "run").follow()]
        assert time.monotonic() - started < 5
        assert open_run(tmp_path / "run").status.state == "dead"
    # Data flushed by both ranks is stored.
    assert steps == [(step, rank) for step in range(3) for rank in RANKS]


LATE = """
import sys
from vinedresser.capture import Hook
hook = Hook(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
hook.metric("late", 1.0)
hook.close()
"""


def test_a_rank_that_outlives_rank_0_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", LATE, path],
                    env=rank_environment(rank),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in RANKS
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        started[0].communicate("\n", timeout=60)
        assert open_run(path).status.state == "running"
        # The rest is reported when no rank can write any more.
        end = threading.Timer(1.0, started[1].communicate, ("\n",))
        end.start()
        assert [step.rank for step in open_run(path).follow()] == [0, 1]
        end.join()
    assert open_run(path).status.state == "finished"


def test_the_rank_of_a_process_started_by_lightning() -> None:
    given = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}
    assert Environment.read(given).rank == 1
    assert Environment.read({**given, "RANK": "0"}).rank == 0
    with pytest.raises(ConfigError, match="set VINEDRESSER_RANK"):
        Environment.read({**given, "NODE_RANK": "1"})


def test_two_processes_that_claim_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Hook(tmp_path / "run"):
        monkeypatch.setenv("RANK", "1")
        with (
            Hook(tmp_path / "run"),
            pytest.raises(SecondWriter, match="rank 1 already has a writer"),
        ):
            Hook(tmp_path / "run", strict=True)
