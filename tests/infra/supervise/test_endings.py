"""The ways in which a training ends are told apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.infra.supervise.supervised import DEAF, ended, trainer_pid
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify, this_process
from vinedresser.store.records import (
    Heartbeat,
    heartbeat_key,
    write_record,
)

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]

# Works until it is told to end, then saves, as a training with a hook does.
SAVES = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("checkpoint").write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
while True:
    time.sleep(0.01)
"""


def test_a_program_that_ends_well_is_finished(launched: Launched) -> None:
    directory, supervisor = launched("print('done')")
    record = ended(directory)
    assert (record.cause, record.code, record.signal, record.stop) == ("finished", 0, "", None)
    assert supervisor.wait() == 0
    assert abs(record.ended - time.time()) < 60


def test_a_crash_is_told_with_the_last_line_of_its_traceback(launched: Launched) -> None:
    code = """
        try:
            {}["learning rate"]
        except KeyError as error:
            raise ValueError("lr is missing: Schrödinger") from error
    """
    record = ended(launched(textwrap.dedent(code))[0])
    assert (record.cause, record.code, record.signal) == ("crashed", 1, "")
    assert record.reason == "ValueError: lr is missing: Schrödinger"


def test_a_script_that_cannot_be_parsed_is_a_crash_that_says_so(launched: Launched) -> None:
    record = ended(launched("print('open'\n")[0])
    assert record.cause == "crashed"
    assert record.reason == "SyntaxError: '(' was never closed"


def test_a_failure_without_traceback_is_told_with_its_last_words(launched: Launched) -> None:
    code = (
        "import sys; print('train.py: error: no such option: --lrr', file=sys.stderr); sys.exit(2)"
    )
    record = ended(launched(code)[0])
    assert (record.cause, record.code) == ("crashed", 2)
    assert record.reason == "train.py: error: no such option: --lrr"


def test_a_failure_without_a_word_is_told_by_its_exit_code(launched: Launched) -> None:
    assert ended(launched("import os; os._exit(3)")[0]).reason == "exit code 3"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGKILL, "killed"),
        (signal.SIGTERM, "killed"),
        (signal.SIGUSR1, "killed"),
        (signal.SIGSEGV, "crashed"),
        (signal.SIGABRT, "crashed"),
    ],
)
def test_signals_from_outside_kill_and_faults_crash(
    launched: Launched, eventually: Eventually, tmp_path: Path, number: signal.Signals, cause: str
) -> None:
    directory, _ = launched("open('ready', 'w'); import time; time.sleep(600)")
    eventually((tmp_path / "ready").exists)
    eventually((directory / "supervisor.json").exists)
    os.kill(trainer_pid(directory), number)
    record = ended(directory)
    assert (record.cause, record.code, record.signal) == (cause, None, number.name)
    assert number.name in record.reason


@pytest.mark.parametrize(
    ("code", "cause", "name"), [(143, "killed", "SIGTERM"), (139, "crashed", "SIGSEGV")]
)
def test_exit_codes_that_stand_for_signals_count_as_these(
    launched: Launched, code: int, cause: str, name: str
) -> None:
    record = ended(launched(f"import sys; sys.exit({code})")[0])
    assert (record.cause, record.code, record.signal) == (cause, code, name)


def test_a_stop_by_a_rule_lets_the_training_save_and_is_told_with_the_finding(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, _ = launched(SAVES)
    eventually((tmp_path / "ready").exists)
    for rank, step in ((0, 41), (1, 40)):
        beat = Heartbeat(rank, asdict(this_process()), step, time.time())
        write_record(LocalStorage(directory), beat, key=heartbeat_key(rank))
    request_stop(directory, by="rule", rule="nonfinite", step=40, reason="loss is NaN")
    record = ended(directory)
    assert (record.cause, record.reason, record.code) == ("stopped", "loss is NaN", 0)
    assert record.last_step == 41
    assert record.stop is not None
    assert (record.stop.by, record.stop.rule, record.stop.step) == (
        "rule",
        "nonfinite",
        40,
    )
    assert (tmp_path / "checkpoint").read_text() == "saved"


def test_who_does_not_listen_is_killed_after_the_grace_and_counts_as_stopped(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, _ = launched(DEAF, grace=0.3)
    eventually((tmp_path / "ready").exists)
    begun = time.monotonic()
    request_stop(directory, reason="enough")
    record = ended(directory)
    assert time.monotonic() - begun >= 0.3
    assert (record.cause, record.reason) == ("stopped", "enough")
    assert (record.code, record.signal) == (None, "SIGKILL")


def test_an_end_of_its_own_before_the_stop_was_passed_on_is_no_stop(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.005)"
    directory, supervisor = launched(code)
    eventually((directory / "supervisor.json").exists)
    supervisor.send_signal(signal.SIGSTOP)
    request_stop(directory, reason="too late")
    (tmp_path / "go").touch()
    pid = trainer_pid(directory)
    eventually(lambda: identify(pid) is None)
    supervisor.send_signal(signal.SIGCONT)
    assert ended(directory).cause == "finished"


def test_a_run_that_was_stopped_before_its_start_is_not_started(
    prepared: Prepared, tmp_path: Path
) -> None:
    directory = prepared("open('ready', 'w')")
    request_stop(directory, reason="changed my mind")
    assert supervise(directory).returncode == 0
    record = ended(directory)
    assert (record.cause, record.reason, record.code) == ("stopped", "changed my mind", None)
    assert not (tmp_path / "ready").exists()


def test_a_stop_file_made_by_hand_stops_too(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, _ = launched(SAVES)
    eventually((tmp_path / "ready").exists)
    (directory / "stop.json").touch()
    record = ended(directory)
    assert record.cause == "stopped"
    assert record.stop is not None
    assert record.stop.by == "person"


def test_ending_the_supervisor_ends_the_training_in_good_order(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(SAVES)
    eventually((tmp_path / "ready").exists)
    supervisor.terminate()
    record = ended(directory)
    assert (record.cause, record.stop and record.stop.by) == ("stopped", "person")
    assert (tmp_path / "checkpoint").exists()


def test_the_trainers_helpers_are_not_asked_before_it(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    # PyTorch's data loader raises in the trainer when one of its workers is terminated.
    code = """
        import os, pathlib, signal, sys, time
        def note(*_):
            pathlib.Path("helper was terminated").touch()
            os._exit(0)
        helper = os.fork()
        if helper == 0:
            signal.signal(signal.SIGTERM, note)
            pathlib.Path("helper is ready").touch()
            time.sleep(600)
        def save(*_):
            os.kill(helper, signal.SIGKILL)
            os.waitpid(helper, 0)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        while not pathlib.Path("helper is ready").exists():
            time.sleep(0.005)
        pathlib.Path("ready").touch()
        time.sleep(600)
    """
    directory, _ = launched(textwrap.dedent(code))
    eventually((tmp_path / "ready").exists)
    request_stop(directory, reason="enough")
    assert ended(directory).code == 0
    assert not (tmp_path / "helper was terminated").exists()


def test_a_training_behind_a_shell_may_save_as_well(
    prepared: Prepared, launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SAVES)
    directory, _ = launched(argv=["/bin/sh", "-c", f"{sys.executable} -S train.py; true"])
    eventually((tmp_path / "ready").exists)
    request_stop(directory, reason="enough")
    record = ended(directory)
    assert (record.cause, record.signal) == ("stopped", "SIGTERM")
    assert (tmp_path / "checkpoint").exists()


def test_a_program_that_is_missing_crashes_with_its_name(prepared: Prepared) -> None:
    directory = prepared(argv=["no-such-program", "--lr", "1"])
    supervise(directory)
    record = ended(directory)
    assert (record.cause, record.code) == ("crashed", 127)
    assert record.reason == "no-such-program: No such file or directory"


def test_a_directory_that_is_missing_crashes_with_its_name(
    prepared: Prepared, tmp_path: Path
) -> None:
    directory = prepared(cwd=tmp_path / "away")
    supervise(directory)
    record = ended(directory)
    assert (record.cause, record.code) == ("crashed", 127)
    assert record.reason == f"{tmp_path / 'away'}: No such file or directory"


@pytest.mark.parametrize(("mode", "why"), [(0o644, "Permission denied"), (0o755, "Exec format")])
def test_a_program_that_cannot_run_crashes_with_its_name(
    prepared: Prepared, tmp_path: Path, mode: int, why: str
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\0\0\0\0")
    program.chmod(mode)
    directory = prepared(argv=[str(program)])
    supervise(directory)
    record = ended(directory)
    assert (record.cause, record.code) == ("crashed", 126)
    assert record.reason.startswith(f"{program}: {why}")


def supervise(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a supervisor to its end, without what the launcher checks before."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "vinedresser.infra.supervise.supervisor", directory],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
