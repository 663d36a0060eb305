"""Preparing, starting, awaiting, stopping and settling a run, seen from outside."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from vinedresser.errors import (
    AlreadyARun,
    ConfigError,
    LaunchError,
    NotARun,
    StillRunning,
    StoreError,
)
from vinedresser.infra.supervise.launcher import (
    check_command,
    prepare_run,
    request_stop,
    settle,
    start,
    supervisor_alive,
    wait_for_exit,
)
from vinedresser.infra.supervise.launcher.source_code import SourceCode, source_code
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify, this_process
from vinedresser.store.records import (
    ClaimRecord,
    ExitRecord,
    Heartbeat,
    LaunchRecord,
    RunRecord,
    StopRecord,
    heartbeat_key,
    new_run,
    read_record,
    write_record,
)

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


TRUE = LaunchRecord(["true"], ".")


def test_a_run_whose_supervisor_cannot_be_started_has_ended(prepared: Prepared) -> None:
    directory = prepared()
    (directory / "supervisor.lock").mkdir()
    with pytest.raises(LaunchError, match="its supervisor cannot be started"):
        start(directory)
    # Otherwise its judges and recorders would wait for its first step.
    record = read_record(LocalStorage(directory), ExitRecord)
    assert record is not None
    assert (record.cause, record.code) == ("crashed", 126)


def test_what_was_asked_for_is_on_record(tmp_path: Path) -> None:
    launch = LaunchRecord(
        argv=["python", "train.py"],
        cwd=str(tmp_path),
        environment={"SEED": "1"},
        owner=asdict(this_process()),
        grace=3.0,
        forward=True,
    )
    run = prepare_run(
        tmp_path / "runs" / "digits",
        replace(
            new_run("digits", {"lr": 0.1, "layers": (32, 16)}),
            total_steps=100,
            capture={"losses": {"every": 1}},
            capture_digest="d1",
        ),
        launch,
    )
    storage = LocalStorage(tmp_path / "runs" / "digits")
    assert read_record(storage, RunRecord) == run
    assert len(bytes.fromhex(run.id)) == 16
    assert run == replace(
        RunRecord(id=run.id, name="digits", created=run.created),
        command=["python", "train.py"],
        parameters={"lr": 0.1, "layers": [32, 16]},
        total_steps=100,
        capture={"losses": {"every": 1}},
        capture_digest="d1",
    )
    assert abs(run.created - time.time()) < 60
    assert read_record(storage, LaunchRecord) == LaunchRecord(
        argv=["python", "train.py"],
        cwd=str(tmp_path),
        environment={"SEED": "1"},
        owner=asdict(this_process()),
        grace=3.0,
        forward=True,
    )


def test_a_directory_that_is_a_run_is_refused(prepared: Prepared) -> None:
    directory = prepared("first")
    before = {path: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(AlreadyARun, match=f"{directory}: already holds a run"):
        prepare_run(directory, new_run("second"), TRUE)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        prepare_run(tmp_path / "file", new_run("run"), TRUE)


def test_a_parameter_without_a_json_type_is_refused_or_kept_as_text() -> None:
    parameters = {"lr": 0.1, "since": dt.date(2026, 1, 2)}
    with pytest.raises(ConfigError, match=r"parameters.since: datetime.date\(2026, 1, 2\)"):
        new_run("run", parameters)
    assert new_run("run", parameters, as_text=True).parameters == {"lr": 0.1, "since": "2026-01-02"}


def test_the_trainer_knows_its_run_and_not_the_flow(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLOW", "RUN", "RUN_ID", "RANK"):
        monkeypatch.setenv(f"VINEDRESSER_{name}", "of somebody else")
    monkeypatch.setenv("SEED", "1")
    monkeypatch.setenv("INHERITED", "yes")
    code = "import json, os; json.dump([dict(os.environ), os.getcwd()], open('seen', 'w'))"
    directory, supervisor = launched(code, environment={"SEED": "2"})
    supervisor.wait()
    environment, cwd = json.loads((tmp_path / "seen").read_text())
    run = read_record(LocalStorage(directory), RunRecord)
    assert run is not None
    own = {name: text for name, text in environment.items() if "VINEDRESSER" in name}
    assert own.pop("VINEDRESSER_STACKS").partition(":")[0] == str(supervisor.pid)
    assert own == {
        "VINEDRESSER_RUN": str(directory),
        "VINEDRESSER_RUN_ID": run.id,
    }
    assert (environment["SEED"], environment["INHERITED"]) == ("2", "yes")
    assert cwd == str(tmp_path)


def test_the_supervisor_carries_no_marker(
    launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_FLOW", "mine")
    _, supervisor = launched("import time; time.sleep(600)")
    assert b"VINEDRESSER_" not in Path(f"/proc/{supervisor.pid}/environ").read_bytes()


def test_files_beside_the_script_do_not_shadow_the_standard_library(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "selectors.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    directory, supervisor = launched()
    assert supervisor.wait() == 0
    assert wait_for_exit(directory, 30) is not None


def test_a_relative_directory_means_the_same_to_all(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    launch = LaunchRecord(["printenv", "VINEDRESSER_RUN"], "/")
    prepare_run("relative", new_run("run"), launch)
    start("relative").wait()
    assert (tmp_path / "relative" / "log.txt").read_text() == f"{tmp_path / 'relative'}\n"


def test_a_script_that_is_missing_is_named_and_ends_the_run(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    launch = LaunchRecord([sys.executable, "-u", "trian.py"], str(tmp_path))
    prepare_run(directory, new_run("run"), launch)
    with pytest.raises(LaunchError, match=f"{tmp_path}/trian.py: no such script"):
        start(directory)
    record = wait_for_exit(directory, 0)
    assert record is not None
    assert (record.cause, record.code) == ("crashed", 127)
    assert record.reason == f"{tmp_path}/trian.py: no such script"
    assert not supervisor_alive(directory)


# Systems may have python3, but no python.
BESIDE = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "script.py", "--lr", "1"],
        ["python3", "-u", "-W", "error", "-Xdev", "script.py"],
        ["python", "-m", "no_such_module"],
        ["python", "-Ic", "pass"],
        ["python", "-"],
        ["python"],
        [sys.executable, "package"],
        ["sh", "no-such-script"],
        ["./program"],
    ],
)
def test_commands_that_may_start(tmp_path: Path, argv: list[str]) -> None:
    (tmp_path / "script.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "program").touch(0o755)
    check_command(argv, tmp_path, BESIDE)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "empty command"),
        (["no-such-program"], "no-such-program: no such program on PATH"),
        (["./no-such-program"], "no-such-program: no such program"),
        (["train.ipynb"], "train.ipynb: a notebook is not a program; execute it by jupyter"),
        (["./script.py"], "script.py: not executable"),
        (["./package"], "package: no such program"),
        (["python", "-X", "dev", "no_such.py"], "no_such.py: no such script"),
        ([sys.executable, "no_such.py", "-c"], "no_such.py: no such script"),
    ],
)
def test_commands_that_cannot_start(tmp_path: Path, argv: list[str], message: str) -> None:
    (tmp_path / "script.py").touch(0o644)
    (tmp_path / "package").mkdir()
    with pytest.raises(LaunchError, match=message):
        check_command(argv, tmp_path, BESIDE)


def test_a_command_needs_its_directory_and_its_path(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="away: no such directory to start python in"):
        check_command(["python"], tmp_path / "away")
    (tmp_path / "tool").touch(0o755)
    check_command(["tool"], tmp_path, {"PATH": str(tmp_path)})
    with pytest.raises(LaunchError, match="tool: no such program on PATH"):
        check_command(["tool"], tmp_path)


def test_what_was_not_prepared_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=r"not a prepared run; it has no launch.json"):
        start(tmp_path)


def test_the_first_who_asks_for_the_end_wins(prepared: Prepared) -> None:
    directory = prepared()
    first = request_stop(directory, by="rule", rule="nonfinite", step=3, reason="loss is NaN")
    assert first == read_record(LocalStorage(directory), StopRecord)
    assert request_stop(directory, reason="enough") == first


def test_a_run_that_has_ended_cannot_be_stopped(launched: Launched) -> None:
    directory, supervisor = launched()
    supervisor.wait()
    assert request_stop(directory, reason="enough") is None
    assert not (directory / "stop.json").exists()


def test_what_is_no_run_cannot_be_stopped_or_settled(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=f"{tmp_path}: not a run; it has no run.json"):
        request_stop(tmp_path, reason="enough")
    with pytest.raises(NotARun, match=f"{tmp_path}: not a run; it has no run.json"):
        settle(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_waiting_ends_with_its_time(launched: Launched) -> None:
    directory, _ = launched("import time; time.sleep(600)")
    begun = time.monotonic()
    assert wait_for_exit(directory, 0.1) is None
    assert 0.1 <= time.monotonic() - begun < 10


def test_a_supervisor_lives_from_the_start_to_the_exit_record(launched: Launched) -> None:
    directory, supervisor = launched()
    assert supervisor_alive(directory)
    supervisor.wait()
    assert not supervisor_alive(directory)
    assert wait_for_exit(directory, 0) is not None


def test_a_prepared_run_is_settled_when_nobody_will_start_it(
    prepared: Prepared, tmp_path: Path
) -> None:
    mine, orphan, stopped = (prepared(name=name, owner=this_process()) for name in "abc")
    with pytest.raises(StillRunning, match="it runs, or is about to"):
        settle(mine)
    with subprocess.Popen(["true"]) as owner:
        gone = replace(this_process(), pid=owner.pid, started=1)
    launch = read_record(LocalStorage(orphan), LaunchRecord)
    assert launch is not None
    write_record(LocalStorage(orphan), replace(launch, owner=asdict(gone)))
    record = settle(orphan)
    assert (record.cause, record.reason) == ("killed", "prepared, but never started")
    request_stop(stopped, reason="changed my mind")
    assert settle(stopped).cause == "stopped"


@pytest.mark.parametrize(
    ("host", "hours", "told", "goes_on"),
    [
        ("here", 0.1, "", True),
        # The clock of the other machine may differ, and its uploads may be delayed.
        ("elsewhere", 0.1, "", True),
        ("elsewhere", 23, "", True),
        ("elsewhere", 25, "", False),
        ("elsewhere", 0.1, "gone", False),
        ("elsewhere", 0.1, "closed", False),
    ],
)
def test_an_unsupervised_run_goes_on_as_long_as_its_process_may_be_alive(
    tmp_path: Path, host: str, hours: float, told: str, goes_on: bool
) -> None:
    """Its end may be told by itself, or by another process of its machine."""
    storage = LocalStorage(tmp_path)
    write_record(storage, RunRecord("00" * 16, "by hand", time.time()))
    with subprocess.Popen(["sleep", "600"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        if host == "elsewhere":
            identity = replace(identity, host=host)
        beat = Heartbeat(0, asdict(identity), 5, time.time() - hours * 3600)
        beat = replace(beat, gone=told == "gone", closed=told == "closed")
        write_record(storage, beat, key=heartbeat_key(0))
        if goes_on:
            with pytest.raises(StillRunning, match="it runs"):
                settle(tmp_path)
        else:
            assert settle(tmp_path) == ExitRecord(
                "killed", "the training vanished", beat.time, last_step=5
            )
        process.kill()


def test_an_additional_run_elsewhere_is_over_a_minute_after_its_last_heartbeat(
    tmp_path: Path,
) -> None:
    """Its script is supervised: it ends as soon as the first run."""
    storage = LocalStorage(tmp_path)
    write_record(storage, RunRecord("00" * 16, "run.2", time.time()))
    write_record(storage, ClaimRecord("job"))
    process = asdict(replace(this_process(), host="elsewhere"))
    write_record(storage, Heartbeat(0, process, 5, time.time() - 50), key=heartbeat_key(0))
    with pytest.raises(StillRunning):
        settle(tmp_path)
    write_record(storage, Heartbeat(0, process, 5, time.time() - 70), key=heartbeat_key(0))
    assert settle(tmp_path).cause == "killed"


def test_a_run_that_began_unsupervised_just_now_is_not_settled(tmp_path: Path) -> None:
    write_record(LocalStorage(tmp_path), RunRecord("00" * 16, "by hand", time.time()))
    with pytest.raises(StillRunning, match="about to"):
        settle(tmp_path)
    write_record(LocalStorage(tmp_path), RunRecord("00" * 16, "by hand", time.time() - 100))
    assert settle(tmp_path).reason == "the training vanished"


def test_the_code_of_a_run_is_its_commit_and_its_changes(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert source_code(tmp_path) == SourceCode()
    git("init", "--quiet", "--initial-branch", "trials")
    assert source_code(tmp_path) == SourceCode()
    (tmp_path / "train.py").write_text("1\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    git("tag", "--annotate", "v1", "--message", "first")
    git("remote", "add", "origin", "https://me:word@example.org/code.git")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "results").touch()
    repository = "https://***@example.org/code.git"
    assert source_code(tmp_path) == SourceCode(commit, "trials", repository)
    # A program that the repository's configuration names is not run.
    git("config", "diff.external", f"touch {tmp_path / 'obeyed'}")
    (tmp_path / "train.py").write_text('api_key = "4711"\n')
    found = source_code(tmp_path)
    assert found[:3] == (f"{commit}-dirty", "trials", repository)
    assert found.changes.splitlines()[-3:] == ["@@ -1 +1 @@", "-1", '+api_key = "***"']
    assert not (tmp_path / "obeyed").exists()
    run = prepare_run(tmp_path / "run", new_run("run"), LaunchRecord(["true"], str(tmp_path)))
    assert (run.code, run.branch, run.repository) == found[:3]
    assert (tmp_path / "run" / "changes.diff").read_text() == found.changes
    git("checkout", "--quiet", "--detach")
    (tmp_path / "train.py").write_text("a line\n" * 50_000)
    found = source_code(tmp_path)
    assert found.branch == ""
    assert len(found.changes) < 260 << 10
    assert found.changes.endswith("the changes are longer than 256 KiB\n")


def test_without_git_the_code_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert source_code(tmp_path) == SourceCode()
    assert source_code(tmp_path / "away") == SourceCode()
