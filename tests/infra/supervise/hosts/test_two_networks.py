"""Two network namespaces are two hosts: the ranks meet at addresses, and a cut is explained."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, StacksRecord, read_record

pytestmark = pytest.mark.slow

BIN = Path(__file__).with_name("bin")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
TRAIN = """
import os, pathlib
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
print("at", os.environ["MASTER_ADDR"], os.environ["GLOO_SOCKET_IFNAME"])
torch.manual_seed(dist.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
    if step == 15:
        pathlib.Path("trains").touch()
dist.destroy_process_group()
"""


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of two connected network namespaces, which `ssh` reaches by address."""
    names = [f"vr{os.getpid()}{one}" for one in "ab"]
    links = [f"v{os.getpid()}{one}" for one in "ab"]
    ip = shutil.which("ip")
    if ip is None or subprocess.run([ip, "netns", "add", names[0]], check=False).returncode:
        pytest.skip("network namespaces cannot be made here")
    try:
        commands = [
            f"netns add {names[1]}",
            f"link add {links[0]} netns {names[0]} type veth peer name {links[1]} netns {names[1]}",
        ]
        for name, link, address in zip(names, links, ADDRESSES, strict=True):
            commands += [
                f"-n {name} addr add {address}/24 dev {link}",
                f"-n {name} link set lo up",
                f"-n {name} link set {link} up",
            ]
        for command in commands:
            subprocess.run([ip, *command.split()], check=True)
        table = (f"{address}={name}" for address, name in zip(ADDRESSES, names, strict=True))
        monkeypatch.setenv("NAMESPACES", " ".join(table))
        monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
        yield names
    finally:
        for name in names:
            subprocess.run([ip, "netns", "delete", name], check=False)


def launched(namespace: str, *options: str, cwd: Path, steps: int = 20) -> subprocess.Popen[str]:
    """Start a run of two ranks on both hosts from the first."""
    (cwd / "train.py").write_text(f"STEPS = {steps}\n{TRAIN}", encoding="utf-8")
    command = [sys.executable, "-m", "vinedresser", "run", "--name", "run", "--ranks", "2"]
    hosts = ["--launcher", "torchrun", "--hosts", ",".join(ADDRESSES)]
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command, *hosts, *options, "train.py"],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ranks_of_two_networks_train_together(namespaces: list[str], tmp_path: Path) -> None:
    run = launched(namespaces[0], cwd=tmp_path)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    lines = (tmp_path / "runs/run/log.txt").read_text().splitlines()
    for rank, one in enumerate("ab"):
        assert f"[rank {rank}] at {ADDRESSES[0]} v{os.getpid()}{one}" in lines


def test_a_network_that_is_cut_is_a_hang_of_both_hosts(
    namespaces: list[str], tmp_path: Path
) -> None:
    rule = 'stalled_training:seconds=4,severity="stop"'
    run = launched(namespaces[0], "--rule", rule, cwd=tmp_path, steps=1_000_000)
    until((tmp_path / "trains").exists)
    cut = f"ip -n {namespaces[1]} link set v{os.getpid()}b down"
    subprocess.run(cut.split(), check=True)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 3, output
    storage = LocalStorage(tmp_path / "runs/run")
    record, stacks = read_record(storage, ExitRecord), read_record(storage, StacksRecord)
    assert record is not None
    assert record.stop is not None
    assert record.stop.rule == "stalled_training"
    assert stacks is not None
    assert all("train.py" in str(rank["frames"]) for rank in stacks.ranks)
