"""A record ends no process: only one whose environment names this very run at this place ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.infra.supervise.supervised import DEAF, trainer_pid
from vinedresser.errors import CorruptData
from vinedresser.infra.supervise.launcher import adopt, settle
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify, this_process
from vinedresser.store.records import (
    LaunchRecord,
    SupervisorRecord,
    new_run,
    write_record,
)

Eventually = Callable[[Callable[[], object]], None]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


@pytest.mark.parametrize("marked", ["not", "with the id", "with the place"])
def test_a_process_that_only_a_record_names_is_left_alone(tmp_path: Path, marked: str) -> None:
    directory = tmp_path / "run"
    storage = LocalStorage(directory)
    run = new_run("run")
    write_record(storage, run)
    # A grace that would keep whoever settles it waiting for a process that is none of the run's.
    write_record(storage, LaunchRecord(["true"], "/", grace=1e6))
    (directory / "supervisor.lock").write_text("taken\n")
    environment = {
        "not": {},
        "with the id": {"VINEDRESSER_RUN_ID": run.id, "VINEDRESSER_RUN": str(tmp_path / "other")},
        "with the place": {"VINEDRESSER_RUN_ID": "other", "VINEDRESSER_RUN": str(directory)},
    }[marked]
    with subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as stranger:
        identity = identify(stranger.pid)
        assert identity is not None
        write_record(storage, SupervisorRecord(asdict(identity), asdict(identity), time.time()))
        assert settle(directory).cause == "killed"
        assert stranger.poll() is None
        stranger.kill()


def test_a_copy_of_a_run_does_not_end_the_original(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(DEAF, patience=60.0)
    eventually((tmp_path / "ready").exists)
    supervisor.kill()
    supervisor.wait()
    trainer = trainer_pid(directory)
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    assert not adopt(copy)
    assert settle(copy, grace=0.0).cause == "killed"
    assert identify(trainer) is not None
    # Another path to the same directory is no copy.
    (tmp_path / "link").symlink_to(directory)
    settle(tmp_path / "link", grace=0.0)
    assert identify(trainer) is None


@pytest.mark.parametrize("pid", ["1/../self", 1.5, None])
def test_what_is_no_identity_is_refused(tmp_path: Path, pid: object) -> None:
    storage = LocalStorage(tmp_path / "run")
    owner = asdict(this_process()) | {"pid": pid}
    document = LaunchRecord(["true"], "/").to_json() | {"owner": owner}
    storage.put(LaunchRecord.KEY, [json.dumps(document).encode()])
    with pytest.raises(
        CorruptData, match=r"launch\.json: not a valid LaunchRecord: .*of a process"
    ):
        adopt(tmp_path / "run")
