"""The entry point of a container of SageMaker, in a tree like that of a container."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.paths import ROOT
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.cli.application import app
from vinedresser.cli.options import selected_rules
from vinedresser.cli.running import metrics_of
from vinedresser.objects import open_storage
from vinedresser.store.reading.reader import Run, open_run

PLAIN = """
import json, os, sys
with open(os.path.join(os.environ["SM_MODEL_DIR"], "told.json"), "w") as file:
    json.dump([sys.argv[1:], os.environ["SM_CHANNEL_TRAIN"]], file)
print("acc: 0.5")
"""
TORCH = """
import json, os
import torch
import torch.distributed as dist

hosts = json.loads(os.environ["SM_HOSTS"])
rank = hosts.index(os.environ["SM_CURRENT_HOST"])
dist.init_process_group("gloo", rank=rank, world_size=len(hosts))
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    loss = model(torch.full((2, 4), float(rank))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()
"""


def container(base: Path, script: str, host: str = "algo-1", hosts: tuple[str, ...] = ()) -> Path:
    """Make the tree of a container."""
    config = base / "input/config"
    config.mkdir(parents=True)
    (base / "input/data/train").mkdir(parents=True)
    files: dict[str, Any] = {
        "hyperparameters": {"lr": "0.5", "flag": "true", "sagemaker_program": '"train.py"'},
        "resourceconfig": {"current_host": host, "hosts": list(hosts or (host,))},
        "inputdataconfig": {"train": {"TrainingInputMode": "File"}},
    }
    for name, content in files.items():
        (config / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (base / "code").mkdir()
    (base / "code/train.py").write_text(script, encoding="utf-8")
    return base


def variables_of(base: Path) -> dict[str, str]:
    return {"SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "job"}


def started(base: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "vinedresser", "sagemaker", "train"],
        env={**os.environ, **variables_of(base), **variables},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run_job(base: Path, *options: str) -> tuple[int, str]:
    """Run a container to its end; return its exit code and what it printed."""
    words = ["-m", "vinedresser", "sagemaker", *options, "train"]
    done = COMMANDS.run(words, Path(), {**os.environ, **variables_of(base)}, merged=True)
    return done.returncode, done.stdout


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, error = process.communicate(timeout=120)
    return process.returncode, out + error


def run_of(base: Path, name: str = "job-1") -> Run:
    run = open_run(base / "output/data/vinedresser" / name)
    run.refresh()
    return run


@pytest.mark.thorough
def test_a_job_runs_as_in_a_container(tmp_path: Path) -> None:
    base = container(tmp_path / "ml", PLAIN)
    code, text = run_job(base, "--metric", "acc=acc: ([0-9.]+)")
    assert code == 0, text
    arguments, channel = json.loads((base / "model/told.json").read_text())
    assert arguments == ["--flag", "True", "--lr", "0.5"]
    assert channel == str(base / "input/data/train")
    assert not (base / "output/failure").exists()
    run = run_of(base)
    assert run.info.parameters == {"lr": 0.5, "flag": True}
    assert run.scalars("metrics")["metrics/acc"].values.tolist() == [0.5]


@pytest.mark.thorough
def test_the_run_is_with_the_checkpoints_that_survive_the_container(tmp_path: Path) -> None:
    base = container(tmp_path / "ml", "print('trained')")
    (base / "checkpoints").mkdir()
    assert run_job(base)[0] == 0
    # A container that takes the place of an interrupted one.
    assert run_job(base)[0] == 0
    assert sorted(path.name for path in (base / "checkpoints/vinedresser").iterdir()) == [
        *("job-1", "job-2"),
    ]


@pytest.mark.thorough
def test_code_and_reason_of_a_failure_are_the_scripts(tmp_path: Path) -> None:
    base = container(tmp_path / "ml", "import sys\nraise ValueError('no such label')")
    assert run_job(base)[0] == 1
    assert "no such label" in (base / "output/failure").read_text()


@pytest.mark.thorough
def test_the_script_has_the_last_word_on_its_failure(tmp_path: Path) -> None:
    script = """
import os, sys
open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w").write("by itself")
sys.exit(42)
"""
    base = container(tmp_path / "ml", script)
    assert run_job(base)[0] == 42
    assert (base / "output/failure").read_text() == "by itself"


def test_a_tree_without_its_files_fails_with_the_reason(tmp_path: Path) -> None:
    base = container(tmp_path / "ml", PLAIN)
    (base / "input/config/resourceconfig.json").unlink()
    code, text = run_job(base)
    assert code == 2
    assert "resourceconfig.json" in text
    assert "resourceconfig.json" in (base / "output/failure").read_text()
    code, text = run_job(container(tmp_path / "other", PLAIN), "serve")
    assert code == 2


@pytest.mark.thorough
def test_a_stopped_job_ends_as_its_script(tmp_path: Path) -> None:
    script = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
pathlib.Path("begun").touch()
while True:
    time.sleep(0.01)
"""
    base = container(tmp_path / "ml", script)
    process = started(base)
    until((base / "code/begun").exists)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 5


@pytest.mark.thorough
def test_each_of_two_hosts_is_a_run(tmp_path: Path) -> None:
    hosts = ("algo-1", "algo-2")
    bases = [container(tmp_path / host, TORCH, host, hosts) for host in hosts]
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
    jobs = [started(base, MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for base in bases]
    assert [code for code, _ in map(ended, jobs)] == [0, 0]
    for base, host in zip(bases, hosts, strict=True):
        run = run_of(base, f"job-{host}-1")
        assert run.info.world_size == 1
        assert run.steps().tolist() == [*range(8)]
    assert (bases[0] / "model/model.pt").exists()


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="Python cannot unpack safely")
def test_code_and_store_may_be_on_s3(tmp_path: Path, s3: str) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.py")
        info.size = len(PLAIN)
        archive.addfile(info, io.BytesIO(PLAIN.encode()))
    open_storage(f"{s3}/code").put("source.tar.gz", [content.getvalue()])
    base = container(tmp_path / "ml", "raise ValueError")
    path = base / "input/config/hyperparameters.json"
    given = json.loads(path.read_text())
    given["sagemaker_submit_directory"] = json.dumps(f"{s3}/code/source.tar.gz")
    path.write_text(json.dumps(given))
    code, text = run_job(base, "--store", f"{s3}/runs")
    assert code == 0, text
    assert open_run(f"{s3}/runs/job-1").status.state == "finished"
    damaged = bytearray(content.getvalue())
    damaged[len(damaged) // 2] ^= 1
    open_storage(f"{s3}/code").put("source.tar.gz", [damaged])
    code, text = run_job(base)
    assert code == 2
    assert "source.tar.gz" in text
    assert "source.tar.gz" in (base / "output/failure").read_text()


def test_the_image_of_the_document_can_be_built_as_far_as_its_text_shows() -> None:
    text = (ROOT / "docs/sagemaker.md").read_text(encoding="utf-8")
    found = re.search(r"^```text\n(FROM .*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = [line.split(" ", 1) for line in found[1].splitlines()]
    assert [one for one, _ in lines] == ["FROM", "COPY", "RUN", "COPY", "ENV", "ENTRYPOINT"]
    given = dict(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minor = given["FROM"].removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {minor}" in project["classifiers"]
    extras = re.search(r"vinedresser\[(.*)\]", given["RUN"])
    assert extras is not None
    assert {*extras[1].split(",")} <= {*project["optional-dependencies"]}
    program, *arguments = json.loads(given["ENTRYPOINT"])
    assert program in project["scripts"]
    # SageMaker appends the argument.
    group: Any = get_command(app)
    command = group.commands[arguments[0]]
    context = command.make_context(arguments[0], [*arguments[1:], "train"])
    assert metrics_of(context.params["metric"])
    assert selected_rules(context.params["preset"], None)
