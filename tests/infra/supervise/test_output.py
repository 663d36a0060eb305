"""What a trainer prints arrives in the log, and, if asked, with whoever started it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra.supervise.supervised import START, ended
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify
from vinedresser.store.records import SupervisorRecord, read_record
from vinedresser.testing.small_disk import small_disk

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


def start_with_pipes(directory: Path) -> subprocess.Popen[bytes]:
    """Start a run from a process whose output we read."""
    return subprocess.Popen(
        [sys.executable, "-c", START, directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def log_of(directory: Path) -> str:
    return (directory / "log.txt").read_text(encoding="utf-8")


def test_both_outputs_are_logged_in_whole_lines(launched: Launched) -> None:
    code = """
        import os
        for piece in ("ste", "p 1\\nst"):
            os.write(1, piece.encode())
            os.write(2, b"warning " if piece == "ste" else b"of old\\n")
        os.write(1, b"ep 2\\nno end of line")
    """
    directory, _ = launched(textwrap.dedent(code))
    ended(directory)
    lines = log_of(directory).splitlines()
    assert sorted(lines) == ["no end of line", "step 1", "step 2", "warning of old"]


def test_characters_split_over_writes_stay_whole(launched: Launched) -> None:
    code = """
        import os, time
        for byte in "größer: ∂L/∂w → 0 🍇\\n".encode():
            os.write(1, bytes([byte]))
            time.sleep(0.002)
    """
    directory, _ = launched(textwrap.dedent(code))
    ended(directory)
    assert log_of(directory) == "größer: ∂L/∂w → 0 🍇\n"


def test_python_prints_arrive_while_it_runs(launched: Launched, eventually: Eventually) -> None:
    directory, _ = launched("import time; print('first'); time.sleep(600)")
    eventually((directory / "log.txt").exists)
    eventually(lambda: log_of(directory) == "first\n")


def test_forwarded_bytes_are_unchanged_and_each_in_its_stream(prepared: Prepared) -> None:
    out = random.Random(1).randbytes(300_000)
    error = random.Random(2).randbytes(300_000)
    code = """
        import os, random
        out, error = random.Random(1).randbytes(300_000), random.Random(2).randbytes(300_000)
        while out or error:
            out = out[os.write(1, out[:7_001]):]
            error = error[os.write(2, error[:9_001]):]
    """
    directory = prepared(textwrap.dedent(code), forward=True)
    received = start_with_pipes(directory).communicate(timeout=60)
    assert received == (out, error)


def test_forwarding_does_not_wait_for_the_end_of_the_line(
    prepared: Prepared, tmp_path: Path
) -> None:
    code = """
        import pathlib, sys, time
        print("continue? ", end="", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.005)
        print("yes")
    """
    directory = prepared(textwrap.dedent(code), forward=True)
    with start_with_pipes(directory) as caller:
        assert caller.stdout is not None
        assert os.read(caller.stdout.fileno(), 100) == b"continue? "
        (tmp_path / "go").touch()
        assert caller.communicate(timeout=60)[0] == b"yes\n"


def test_without_forwarding_nothing_is_printed(prepared: Prepared) -> None:
    directory = prepared("import sys; print(1); print(2, file=sys.stderr)")
    assert start_with_pipes(directory).communicate(timeout=60) == (b"", b"")
    assert sorted(log_of(directory).splitlines()) == ["1", "2"]


@pytest.mark.thorough
def test_a_reader_that_is_stuck_keeps_nobody_from_stopping_the_run(
    prepared: Prepared, eventually: Eventually
) -> None:
    code = "import os\nwhile True: os.write(1, b'x' * 999 + b'\\n')"
    directory = prepared(code, forward=True, grace=0.2)
    caller = start_with_pipes(directory)
    eventually((directory / "log.txt").exists)
    sizes = [0.0, 0.0]

    def stuck() -> bool:
        size, since = (directory / "log.txt").stat().st_size, time.monotonic()
        if size != sizes[0]:
            sizes[:] = size, since
        return size > 0 and since - sizes[1] > 0.3

    eventually(stuck)
    request_stop(directory, reason="nobody reads")
    assert ended(directory).cause == "stopped"
    caller.communicate(timeout=60)


def test_a_reader_that_goes_away_harms_nobody(prepared: Prepared, tmp_path: Path) -> None:
    code = """
        import pathlib, time
        print("first")
        while not pathlib.Path("gone").exists():
            time.sleep(0.005)
        for number in range(10_000):
            print("line", number)
    """
    directory = prepared(textwrap.dedent(code), forward=True)
    with start_with_pipes(directory) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"first\n"
        caller.stdout.close()
        (tmp_path / "gone").touch()
        assert ended(directory).cause == "finished"
    assert log_of(directory).splitlines()[-1] == "line 9999"


@pytest.mark.thorough
def test_a_flood_is_taken_within_bounds(launched: Launched, eventually: Eventually) -> None:
    code = """
        import os, pathlib, time
        line = b"x" * 99 + b"\\n"
        for _ in range(1_500):
            block = line * 600
            while block:
                block = block[os.write(1, block):]
        os.write(2, b"Traceback (most recent call last):\\n  File ...\\nValueError: flooded\\n")
        while not pathlib.Path("go").exists():
            time.sleep(0.005)
        os._exit(1)
    """
    directory, supervisor = launched(textwrap.dedent(code))
    eventually(lambda: bytes_read(supervisor.pid) > 90_000_000)
    peak = Path(f"/proc/{supervisor.pid}/status").read_text().split("VmHWM:")[1].split()[0]
    (directory.parent / "go").touch()
    record = ended(directory)
    assert record.reason == "ValueError: flooded"
    assert int(peak) < 24 * 1024, "KiB"
    log = (directory / "log.txt").read_bytes()
    assert len(log) < 65 * 1024**2
    assert log.endswith(b"\nValueError: flooded\n")
    assert b"[vinedresser: limit of 67108864 bytes reached; only the end is kept]\n" in log


def bytes_read(pid: int) -> int:
    """Return how many bytes a process has read, from anywhere."""
    return int(Path(f"/proc/{pid}/io").read_text().split("rchar:")[1].split()[0])


def test_a_trainer_may_close_its_outputs(launched: Launched, tmp_path: Path) -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.1); open('done', 'w')"
    directory, _ = launched(code)
    assert ended(directory).cause == "finished"
    assert (tmp_path / "done").exists()


@pytest.mark.thorough
def test_outputs_held_open_from_outside_do_not_delay_the_end_for_long(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        import socket
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("socket")
        print("handed over")
        socket.send_fds(connection, [b"outputs"], [1, 2])
    """
    # The path of a socket has to be short.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen()
        directory, _ = launched(textwrap.dedent(code))
        connection, _ = listener.accept()
        with connection:
            descriptors = socket.recv_fds(connection, 100, 2)[1]
            assert ended(directory).cause == "finished"
            for descriptor in descriptors:
                os.close(descriptor)
    assert log_of(directory) == "handed over\n"


def test_a_log_that_is_no_file_costs_the_log_only(prepared: Prepared, tmp_path: Path) -> None:
    directory = prepared("print('x' * 100)\nopen('done', 'w')")
    (directory / "log.txt").symlink_to("/dev/full")
    error = start_with_pipes(directory).communicate(timeout=60)[1].decode()
    assert ended(directory).cause == "finished"
    assert (tmp_path / "done").exists()
    assert error == (
        f"vinedresser supervisor: run: {directory}/log.txt: a symbolic link, not a file; "
        "output is not logged\n"
    )


def test_the_exit_record_is_tried_again_on_a_full_disk(
    prepared: Prepared, eventually: Eventually, tmp_path: Path
) -> None:
    disk = tmp_path / "run"
    disk.mkdir()
    with small_disk(disk, 256 * 1024):
        directory = prepared("open('go', 'rb').read()\nopen('done', 'w')")
        os.mkfifo(tmp_path / "go")
        caller = start_with_pipes(directory)
        # The last file that the supervisor writes before the end.
        eventually((directory / "machine.json").exists)
        filler = directory / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        with contextlib.suppress(OSError):
            (directory / "probe").write_text("x")
            pytest.skip("needs the right to mount a small disk")
        (tmp_path / "go").write_bytes(b"")
        assert caller.stderr is not None
        assert b"No space left on device; cannot record how" in caller.stderr.readline()
        assert (tmp_path / "done").exists()
        assert not (directory / "exit.json").exists()
        filler.unlink()
        assert ended(directory).cause == "finished"
        caller.communicate(timeout=60)


def test_a_run_directory_that_is_moved_harms_no_training(
    prepared: Prepared, eventually: Eventually, tmp_path: Path
) -> None:
    code = """
        import pathlib, time
        pathlib.Path("ready").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.005)
        pathlib.Path("done").touch()
    """
    directory = prepared(textwrap.dedent(code))
    with start_with_pipes(directory) as caller:
        eventually(lambda: (tmp_path / "ready").exists() and (directory / "machine.json").exists())
        record = read_record(LocalStorage(directory), SupervisorRecord)
        assert record is not None
        directory.rename(tmp_path / "elsewhere")
        (tmp_path / "go").touch()
        eventually((tmp_path / "done").exists)
        eventually(lambda: identify(record.trainer["pid"]) is None)
        assert caller.stderr is not None
        assert b"the run directory was removed" in caller.stderr.readline()
        assert not directory.exists()
        (tmp_path / "elsewhere").rename(directory)
        assert ended(directory).cause == "finished"
        assert caller.wait(timeout=60) == 0


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_long_line_is_cut_and_says_so(launched: Launched, end: str) -> None:
    directory, _ = launched(f"print('x' * 100_000, end={end!r})")
    ended(directory)
    assert log_of(directory) == "x" * 65_536 + " [34464 more characters cut]\n"
