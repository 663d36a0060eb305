"""Requests change the capture of a running training from its next step on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.warm_python import TORCH
from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.requests.requesting import await_change, request_capture
from vinedresser.capture.requests.trying_regex import check_quick
from vinedresser.errors import ConfigError, NotARun
from vinedresser.infra.supervise.launcher import prepare_run
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    CaptureRequest,
    LaunchRecord,
    capture_request_key,
    last_step,
    new_run,
    write_record,
)
from vinedresser.testing.runs import make_run, step_record

pytestmark = pytest.mark.thorough

TRAINING = """
import os, sys, time, torch
from vinedresser.capture import Hook

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model.add_module("a_layer_whose_name_is_longer_than_that_of_others", torch.nn.Identity())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hook = Hook(sys.argv[1]).watch(model, optimizer=optimizer)
while not os.path.exists(sys.argv[1] + ".over"):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run directory of a training that lasts until the end of these tests."""
    run = tmp_path_factory.mktemp("requests") / "run"
    with TORCH.running(["-c", TRAINING, str(run)], run.parent, os.environ) as ended:
        await_that(lambda: ended.done() or (run / "heartbeat/0.json").exists())
        assert not ended.done(), ended.result().stderr
        yield run
        Path(f"{run}.over").touch()
        assert ended.result(60).returncode == 0


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


capture = partial(vinedresser, "capture")


def test_the_command_changes_a_running_training(training: Path) -> None:
    done = capture(str(training), "--collection", "gradients", "--every", "10")
    assert done.returncode == 0, done.stderr
    since = int(done.stdout.split("from step ")[1].split()[0])
    assert since > 0

    def steps() -> list[int]:
        run = open_run(training)
        if "gradients/0.weight" not in run.tensor_names():
            return []
        return [int(step) for step in run.tensor("gradients/0.weight").steps()]

    await_that(lambda: len(steps()) > 3)
    assert steps()[0] >= since
    assert {step % 10 for step in steps()} == {0}
    assert open_run(training).info.capture["gradients"]["save"][0]["every"] == 10

    done = capture(str(training), "--collection", "gradients", "--off")
    assert done.returncode == 0, done.stderr
    end = int(done.stdout.split("from step ")[1].split()[0])
    await_that(lambda: (last_step(LocalStorage(training)) or 0) > end + 20)
    assert all(step < end for step in steps())


def test_a_custom_collection_is_known_to_readers(training: Path) -> None:
    asked = Collection("first", regex=r"^outputs/0$", save=SaveConfig(every=5, reductions=("l2",)))
    number = request_capture(LocalStorage(training), [asked])
    change = await_change(LocalStorage(training), number, 60)
    assert change is not None
    assert change.refused == ""
    await_that(lambda: open_run(training).tensor_names(regex="^outputs/") == ["outputs/0"])
    assert open_run(training).tensor_names(collection="first") == ["outputs/0"]


def test_an_invalid_request_is_refused_at_once(training: Path, tmp_path: Path) -> None:
    done = capture(str(training), "--collection", "gradient", "--every", "10")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean gradients" in done.stderr
    done = capture(str(training), "--collection", "gradients")
    assert done.returncode == 2
    assert "--every or --steps, or use --off" in done.stderr
    with pytest.raises(NotARun):
        request_capture(LocalStorage(tmp_path / "none"), [Collection("gradients")])


@pytest.mark.slow
def test_a_regex_that_would_halt_the_training_is_refused(training: Path) -> None:
    begun = last_step(LocalStorage(training)) or 0
    done = capture(
        str(training), "--collection", "all", "--regex", r"^(\w+[./]?)+!", "--every", "1"
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "takes more than 3 s for the names of this run" in line
    await_that(lambda: (last_step(LocalStorage(training)) or 0) > begun)
    harmless = r"^(\w+[./])+weight$"
    done = capture(str(training), "--collection", "all", "--regex", harmless, "--every", "1")
    assert done.returncode == 0, done.stderr


def test_a_regex_that_cannot_be_tried_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ConfigError, match=r"not sent, since the process .* exit code 1"):
        check_quick("^weights/", ["weights/0"])


def test_a_run_that_is_over_cannot_change(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [step_record(0, scalars={"losses/x": 1.0})])
    with pytest.raises(ConfigError, match="is finished, not running"):
        request_capture(LocalStorage(tmp_path / "run"), [Collection("gradients")])


def test_an_invalid_stored_request_is_refused_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    storage = LocalStorage(tmp_path / "run")
    with Hook(tmp_path / "run") as hook:
        request = CaptureRequest(collections={"gradients": {"every": "often"}}, time=0.0)
        write_record(storage, request, key=capture_request_key(0))
        answer = await_change(storage, 0, 60)
        hook.step(loss=1.0)
    assert answer is not None
    assert "every = 'often'" in answer.refused
    assert "capture request refused: gradients.every = 'often'" in capfd.readouterr().err


def test_requests_keep_the_collections_of_rules(tmp_path: Path) -> None:
    needs = CaptureConfig.of({"losses": SaveConfig(every=3)})
    prepared = replace(new_run("r"), needs=needs.to_json())
    record = prepare_run(tmp_path / "run", prepared, LaunchRecord(["true"], "."))
    script = (
        "import time, sys\n"
        "from vinedresser.capture import Hook\n"
        "hook = Hook()\n"
        "for step in range(1000):\n"
        "    hook.step(loss=step)\n"
        "    time.sleep(0.01)\n"
    )
    environment = {RUN_VARIABLE: str(tmp_path / "run"), RUN_ID_VARIABLE: record.id}
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, **environment})
    storage = LocalStorage(tmp_path / "run")
    try:
        await_that((tmp_path / "run/heartbeat/0.json").exists)
        number = request_capture(storage, [Collection("losses", save=SaveConfig(every=50))])
        change = await_change(storage, number, 60)
        assert change is not None
        run = open_run(tmp_path / "run")
        await_that(lambda: run.refresh() >= 0 and run.steps()[-1] > change.step + 100)
        after = {int(step) for step in run.steps() if step >= change.step}
    finally:
        process.kill()
        process.wait()
    assert {step for step in after if step % 3 and step % 50} == set()
    thirds = {step for step in range(change.step, max(after)) if step % 3 == 0}
    assert thirds <= after
