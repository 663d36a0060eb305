"""The conformance suite of launchers; the tests of a launcher subclass `LauncherConformance`."""

# ruff: noqa: D102 (the name of a test is the sentence)

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import StillRunning
from vinedresser.infra.supervise.launcher import (
    prepare_run,
    request_stop,
    settle,
    start,
    supervisor_alive,
)
from vinedresser.objects import LocalStorage
from vinedresser.processes import marked_processes, this_process
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    ExitRecord,
    HostReport,
    LaunchRecord,
    RunRecord,
    StopStepRecord,
    heartbeats,
    host_key,
    last_step,
    new_run,
    rank_log_key,
    read_record,
)

__all__ = ["LauncherConformance", "Started"]

# On a busy machine; reached by a failing test only.
_PATIENCE = 90.0
# Waits until both ranks are here.
_MEET = """
import os, pathlib, signal, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def meet(name="here"):
    pathlib.Path(f"{name}-{rank}").touch()
    while not all(pathlib.Path(f"{name}-{one}").exists() for one in range(world)):
        time.sleep(0.005)
meet()
"""
# Trains until it is stopped.
_TRAIN = """
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {_PATIENCE} s"
        time.sleep(0.01)


class Started:
    """A run of two ranks that was started."""

    def __init__(self, directory: Path, supervisor: subprocess.Popen[bytes]) -> None:
        self.directory, self.supervisor = directory, supervisor
        self.storage = LocalStorage(directory)
        run = read_record(self.storage, RunRecord)
        assert run is not None
        self.marker = f"{RUN_ID_VARIABLE}={run.id}"

    def meet(self) -> None:
        """Wait until both ranks have begun."""
        _wait(lambda: all((self.directory.parent / f"here-{rank}").exists() for rank in range(2)))

    def end(self) -> ExitRecord:
        """Wait for the end, and return it; no process is left."""
        assert self.supervisor.wait(_PATIENCE) == 0
        record = read_record(self.storage, ExitRecord)
        assert record is not None
        _wait(lambda: not [*marked_processes(self.marker)])
        return record

    def report(self, host: int) -> HostReport:
        """Return the report of a host."""
        found = read_record(self.storage, HostReport, key=host_key(host))
        assert found is not None
        return found


class LauncherConformance:
    """Tests of a launcher with two ranks; override the fixture `launch`."""

    @pytest.fixture
    def launch(self) -> dict[str, Any]:
        """The settings of two ranks for `LaunchRecord`, each with a host process of its own."""
        raise NotImplementedError

    @pytest.fixture
    def started(self, launch: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Started]]:
        """Return a function that starts a run of Python code."""
        begun: list[Started] = []

        def begin(code: str, **options: Any) -> Started:
            script = tmp_path / "train.py"
            script.write_text(_MEET + textwrap.dedent(code), encoding="utf-8")
            quick = ["-S"] if code != _TRAIN else []
            record = LaunchRecord(
                [sys.executable, *quick, str(script)],
                str(tmp_path),
                owner=asdict(this_process()),
                ranks=2,
                **launch,
                **options,
            )
            directory = tmp_path / "run"
            prepare_run(directory, new_run("run"), record)
            begun.append(Started(directory, start(directory)))
            return begun[-1]

        yield begin
        for one in begun:
            one.supervisor.kill()
            one.supervisor.wait()
            with suppress(StillRunning):
                settle(one.directory, grace=0.0)

    def test_each_rank_has_its_variables_and_its_log(
        self, started: Callable[..., Started], tmp_path: Path
    ) -> None:
        run = started("""
            import json
            pathlib.Path(f"{rank}.json").write_text(json.dumps(dict(os.environ)))
            print("line of", rank)
        """)
        assert run.end().cause == "finished"
        seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
        assert [one["RANK"] for one in seen] == ["0", "1"]
        assert {one["WORLD_SIZE"] for one in seen} == {"2"}
        for one in seen:
            assert int(one["LOCAL_RANK"]) < int(one["LOCAL_WORLD_SIZE"])
        assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in seen}) == 1
        workers = [json.loads(one["TF_CONFIG"])["cluster"]["worker"] for one in seen]
        assert workers[0] == workers[1]
        assert workers[0][0] == f"{seen[0]['MASTER_ADDR']}:{seen[0]['MASTER_PORT']}"
        logs = [(run.directory / rank_log_key(rank)).read_text() for rank in range(2)]
        assert logs == ["line of 0\n", "line of 1\n"]
        merged = (run.directory / "log.txt").read_text().splitlines()
        assert {"[rank 0] line of 0", "[rank 1] line of 1"} <= {*merged}

    def test_the_first_failing_rank_is_named_with_its_code_and_ends_the_others(
        self, started: Callable[..., Started]
    ) -> None:
        record = started("""
            if rank == 1:
                sys.exit(42)
            time.sleep(600)
        """).end()
        assert (record.cause, record.code, record.rank) == ("crashed", 42, 1)

    def test_a_stop_reaches_all_ranks_once(
        self, started: Callable[..., Started], tmp_path: Path
    ) -> None:
        run = started(
            """
            def stop(*_):
                with open(f"stopped-{rank}", "a") as file:
                    file.write("once ")
            signal.signal(signal.SIGTERM, stop)
            meet("ready")
            while not all(pathlib.Path(f"stopped-{one}").exists() for one in range(2)):
                time.sleep(0.01)
            time.sleep(0.3)
            """,
            grace=60.0,
        )
        _wait(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in range(2)))
        request_stop(run.directory, reason="enough")
        record = run.end()
        assert (record.cause, record.reason) == ("stopped", "enough")
        assert [(tmp_path / f"stopped-{rank}").read_text() for rank in range(2)] == ["once "] * 2

    @pytest.mark.slow
    def test_a_stop_ends_captured_ranks_after_the_same_step(
        self, started: Callable[..., Started]
    ) -> None:
        run = started(_TRAIN, environment=attach_environment())
        _wait(lambda: (last_step(run.storage) or 0) > 10)
        request_stop(run.directory, reason="enough")
        assert run.end().cause == "stopped"
        assert read_record(run.storage, StopStepRecord) is not None
        beats = heartbeats(run.storage)
        assert [beat.stopped for beat in beats] == [True, True]
        assert len({beat.last_step for beat in beats}) == 1

    def test_ranks_that_do_not_stop_are_killed_after_the_grace_period(
        self, started: Callable[..., Started]
    ) -> None:
        run = started(
            """
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            meet("deaf")
            time.sleep(600)
            """,
            grace=0.2,
        )
        _wait(lambda: all((run.directory.parent / f"deaf-{one}").exists() for one in range(2)))
        request_stop(run.directory, reason="enough")
        assert run.end().cause == "stopped"

    def test_a_host_whose_process_dies_is_named(self, started: Callable[..., Started]) -> None:
        run = started("time.sleep(600)", grace=2.0)
        run.meet()
        os.kill(run.report(1).process["pid"], signal.SIGKILL)
        record = run.end()
        assert (record.cause, record.rank) == ("killed", 1)
        assert "host 1 " in record.reason

    def test_nothing_survives_the_supervisor(self, started: Callable[..., Started]) -> None:
        run = started("time.sleep(600)", grace=0.5)
        run.meet()
        run.supervisor.kill()
        run.supervisor.wait()
        assert not supervisor_alive(run.directory)
        assert settle(run.directory).cause == "killed"
        _wait(lambda: not [*marked_processes(run.marker)])

    def test_a_secret_reaches_the_ranks_and_no_command_line(
        self, started: Callable[..., Started], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = f"of-{tmp_path.name}-only"
        monkeypatch.setenv("DATA_KEY", secret)
        run = started(
            """
            pathlib.Path(f"{rank}.key").write_text(os.environ["DATA_KEY"])
            while not pathlib.Path("seen").exists():
                time.sleep(0.01)
            """,
            environment_from=["DATA_KEY"],
        )
        run.meet()
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                assert secret.encode() not in process.read_bytes()
        (tmp_path / "seen").touch()
        assert run.end().cause == "finished"
        assert [(tmp_path / f"{rank}.key").read_text() for rank in range(2)] == [secret] * 2
        for file in (path for path in run.directory.rglob("*") if path.is_file()):
            assert secret not in file.read_text(errors="replace")

    def test_a_program_that_cannot_be_started_is_named(
        self, launch: dict[str, Any], tmp_path: Path
    ) -> None:
        program = tmp_path / "program"
        program.write_text("no program")
        program.chmod(0o755)
        record = LaunchRecord([str(program)], str(tmp_path), ranks=2, **launch)
        prepare_run(tmp_path / "run", new_run("run"), record)
        run = Started(tmp_path / "run", start(tmp_path / "run"))
        ended = run.end()
        assert ended.cause == "crashed"
        assert str(program) in ended.reason
