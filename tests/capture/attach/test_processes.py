"""Assignment of runs to the processes of unchanged scripts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.capture.attach.runs import Both, alone, attached, script
from vinedresser.store.reading.reader import open_run

RANKS = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def train(rank, address):
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.full((8, 4), 1.0 + rank)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        print(f"{rank}: {[value.tolist() for value in model.module.parameters()]}\\n", end="")
        dist.destroy_process_group()

    if __name__ == "__main__":
        if "RANK" in os.environ:
            train(int(os.environ["RANK"]), "env://")
        else:
            address = "file://" + os.path.abspath(sys.argv[2])
            torch.multiprocessing.start_processes(
                train, (address,), nprocs=2, start_method=sys.argv[1]
            )
"""


@pytest.mark.thorough
def test_ranks_of_torchrun_share_the_run(tmp_path: Path) -> None:
    script(tmp_path, RANKS)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    options = ("--collection", "gradients:every=1")
    done = attached(*torchrun, "train.py", cwd=tmp_path, options=options)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "runs" / "run")
    assert (run.info.world_size, run.ranks) == (2, (0, 1))
    for rank in (0, 1):
        assert run.steps("train", rank=rank).tolist() == list(range(5))
        assert run.tensor("gradients/weight").value(step=4, rank=rank).shape == (1, 4)
    assert not (tmp_path / "runs" / "run.2").exists()


@pytest.mark.slow
def test_ranks_that_the_script_spawns_share_the_run(tmp_path: Path) -> None:
    script(tmp_path, RANKS)
    # Forked ranks compute the same without importing torch again.
    plain = alone(sys.executable, "train.py", "fork", "rendezvous", cwd=tmp_path)
    done = attached("train.py", "spawn", "another", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    run = open_run(tmp_path / "runs" / "run")
    assert (run.info.world_size, run.ranks) == (2, (0, 1))


ACCELERATED = """
    import torch
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(data, batch_size=8)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    loss_fn = torch.nn.CrossEntropyLoss()
    for inputs, labels in batches:
        loss = loss_fn(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {accelerator.process_index}: {float(loss)!r}\\n", end="", flush=True)
"""


@pytest.mark.slow
def test_ranks_of_accelerate_share_the_run(tmp_path: Path) -> None:
    """It needs a package index: accelerate is no dependency, and is installed without torch."""
    packages = ("accelerate==1.15.0", "huggingface_hub==0.36.0")
    target = ("--no-deps", "--target", str(tmp_path / "packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *target, *packages], check=True
    )
    script(tmp_path, ACCELERATED)
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu")
    settings = ("--num_processes=2", "--num_machines=1", "--mixed_precision=no")
    command = (*launch, *settings, "--dynamo_backend=no", "train.py")
    path = str(tmp_path / "packages")
    plain = alone(*command, cwd=tmp_path, PYTHONPATH=path, ACCELERATE_USE_CPU="true")
    done = attached(*command, cwd=tmp_path, PYTHONPATH=path, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    run = open_run(tmp_path / "runs" / "run")
    assert (run.info.world_size, run.ranks) == (2, (0, 1))
    first = [float(line.split()[2]) for line in plain.stdout.splitlines() if "rank 0" in line]
    assert run.scalars("losses")["losses/CrossEntropyLoss"].values.tolist() == first
    assert not (tmp_path / "runs" / "run.2").exists()


CHILDREN = """
    import multiprocessing, subprocess, sys
    import torch

    def train(seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).pow(2).sum()
            loss.backward()
            optimizer.step()
        return loss.item()

    if __name__ == "__main__":
        if sys.argv[1:] == ["in one process"]:
            print(train(7), "", [train(1), train(2)], [train(3)], train(0), sep="\\n")
        elif len(sys.argv) > 1:
            print(train(int(sys.argv[1])))
        else:
            print(subprocess.run([sys.executable, __file__, "7"], stdout=-1, text=True).stdout)
            with multiprocessing.get_context("fork").Pool(1) as pool:
                print(pool.map(train, [1, 2]))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(train, [3]))
            print(train(0))
"""


@pytest.mark.slow
def test_every_training_process_has_its_own_run(tmp_path: Path) -> None:
    script(tmp_path, CHILDREN)
    pair = Both(
        alone(sys.executable, "train.py", "in one process", cwd=tmp_path),
        attached("train.py", cwd=tmp_path),
        tmp_path / "runs" / "run",
    )
    assert pair.attached.stdout == pair.alone.stdout
    assert pair.alone.returncode == pair.attached.returncode == 0, pair.attached.stderr
    runs = [pair.open(number) for number in range(1, 6)]
    for run in runs:
        assert run.steps("train").tolist() == list(range(6))
        assert run.info.name == run.path.rpartition("/")[2]
    assert len({run.info.id for run in runs}) == 5
    assert pair.attached.stderr.count("another training is captured in") == 4
    assert not pair.run.with_name("run.6").exists()


OWN_HOOK = """
    import sys
    import torch
    from vinedresser.capture import Hook

    def train(hooked):
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if hooked:
            Hook("own").watch(model, optimizer=optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).pow(2).sum().backward()
            optimizer.step()

    for word in sys.argv[1:]:
        train(word == "hooked")
    print("trained")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("hooked", "plain"), ["run"]),
        (("plain", "hooked"), ["run", "run.2"]),
    ],
)
def test_the_attached_hook_yields_to_one_of_the_script(
    words: tuple[str, ...], runs: list[str], tmp_path: Path
) -> None:
    script(tmp_path, OWN_HOOK)
    options = ("--collection", "weights:every=1")
    done = attached("train.py", *words, cwd=tmp_path, options=options)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert {path.name for path in (tmp_path / "runs").iterdir()} == set(runs)
    for name in runs:
        run = open_run(tmp_path / "runs" / name)
        assert (run.status.state, list(run.scalars("losses"))) == ("finished", ["losses/loss"])
        assert run.tensor("weights/weight").steps().tolist() == list(range(4))


ENDLESS = """
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).pow(2).sum().backward()
        optimizer.step()
"""


@pytest.mark.thorough
def test_a_stop_ends_the_script_between_two_steps_with_a_checkpoint(tmp_path: Path) -> None:
    script(tmp_path, ENDLESS)
    command = [sys.executable, "-m", "vinedresser", "run", "--name", "run", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        run = tmp_path / "runs" / "run"
        deadline = time.monotonic() + 60
        while not list(run.glob("index/0/*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(2)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert open_run(run).status.state == "stopped"
    assert len(list(run.glob("checkpoints/*.safetensors"))) == 1
    assert "Traceback" not in said
