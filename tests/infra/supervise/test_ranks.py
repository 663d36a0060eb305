"""Several ranks are started, logged, ended and explained as one run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.infra.supervise.supervised import START, ended
from vinedresser.errors import LaunchError
from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS
from vinedresser.infra.supervise.launcher import request_stop, settle, start
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify
from vinedresser.store.records import (
    StacksRecord,
    StacksRequest,
    SupervisorRecord,
    read_record,
    write_record,
)

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]

# Waits until all ranks are here: an error of one must not end another before it has begun.
MEET = """
import os, pathlib, signal, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
pathlib.Path(f"here-{rank}").touch()
while not all(pathlib.Path(f"here-{one}").exists() for one in range(world)):
    time.sleep(0.005)
"""


def pids(directory: Path) -> list[int]:
    record = read_record(LocalStorage(directory), SupervisorRecord)
    assert record is not None
    return [int(one["pid"]) for one in (record.trainer, *record.peers)]


def code(text: str) -> str:
    return MEET + textwrap.dedent(text)


def test_the_only_rank_that_is_left_knows_that_it_is_alone(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    program = """
        import json
        pathlib.Path(f"{rank}.json").write_text(json.dumps(dict(os.environ)))
    """
    directory = prepared(code(program), ranks=1, min_ranks=1)
    start(directory).wait()
    assert ended(directory).cause == "finished"
    seen = json.loads((tmp_path / "0.json").read_text())
    assert (seen["RANK"], seen["LOCAL_RANK"]) == ("0", "0")
    assert (seen["WORLD_SIZE"], seen["LOCAL_WORLD_SIZE"]) == ("1", "1")
    master = f"{seen['MASTER_ADDR']}:{seen['MASTER_PORT']}"
    assert json.loads(seen["TF_CONFIG"])["cluster"]["worker"] == [master]
    assert seen["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))


def test_each_rank_knows_the_others_and_shares_the_machine(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"GPU-{tmp_path.name}-{number}" for number in range(6)]
    monkeypatch.setenv(VISIBLE_GPUS, ",".join(names))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    program = """
        import json, socket
        pathlib.Path(f"{rank}.json").write_text(json.dumps(dict(os.environ)))
        own = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][rank]
        host, port = own.split(":")
        socket.create_server((host, int(port))).close()
    """
    directory = prepared(code(program), ranks=3, gpus_per_rank=2)
    start(directory).wait()
    assert ended(directory).cause == "finished"
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    for name in ("RANK", "LOCAL_RANK"):
        assert [one[name] for one in seen] == ["0", "1", "2"]
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        assert {one[name] for one in seen} == {"3"}
    assert {one["OMP_NUM_THREADS"] for one in seen} == {str(max(cores() // 3, 1))}
    assert [one[VISIBLE_GPUS] for one in seen] == [",".join(names[at : at + 2]) for at in (0, 2, 4)]
    workers = [json.loads(one["TF_CONFIG"]) for one in seen]
    assert [worker["task"] for worker in workers] == [
        {"type": "worker", "index": rank} for rank in range(3)
    ]
    assert len({str(worker["cluster"]) for worker in workers}) == 1
    assert len({*workers[0]["cluster"]["worker"]}) == 3
    # What the ranks shared is free again.
    assert {one["MASTER_ADDR"] for one in seen} == {"127.0.0.1"}
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(seen[0]["MASTER_PORT"])))


def test_too_few_gpus_for_the_ranks_are_an_error_before_any_starts(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE_GPUS, "only")
    directory = prepared("", ranks=2, gpus_per_rank=1)
    with pytest.raises(LaunchError, match="2 GPUs requested; this machine has 1"):
        start(directory)
    assert ended(directory).code == 127


def test_a_rank_that_exits_gives_the_job_its_code_and_ends_the_others(launched: Launched) -> None:
    program = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 1:
            sys.exit(42)
        time.sleep(600)
    """
    began = time.monotonic()
    directory, _ = launched(code(program), ranks=3, grace=0.2)
    record = ended(directory)
    assert (record.cause, record.code, record.rank) == ("crashed", 42, 1)
    assert record.reason == "rank 1: exit code 42"
    assert time.monotonic() - began < 15
    assert [identify(pid) for pid in pids(directory)] == [None] * 3


@pytest.mark.parametrize("seconds", [0.3, 600])
def test_the_cause_is_named_and_not_its_victims(seconds: float, launched: Launched) -> None:
    # The first to end is a victim: the interpreter of the other one needs longer.
    program = f"""
        if rank == 2:
            import atexit
            atexit.register(time.sleep, {seconds})
            atexit.register(pathlib.Path("closed").touch)
            raise ValueError("no such label")
        while not pathlib.Path("closed").exists():
            time.sleep(0.005)
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:2")
    """
    directory, _ = launched(code(program), ranks=3, grace=0.2)
    record = ended(directory)
    assert (record.cause, record.code, record.rank) == ("crashed", 1, 2)
    assert record.reason == "rank 2: ValueError: no such label"


def test_a_rank_that_may_be_left_out_gives_the_others_time_to_fail_alike(
    launched: Launched, tmp_path: Path
) -> None:
    program = """
        if rank == 1:
            pathlib.Path("failed").touch()
            raise ValueError("no such label")
        def note(*_):
            pathlib.Path("asked").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, note)
        time.sleep(600)
    """
    directory, _ = launched(code(program), ranks=2, min_ranks=1)
    assert ended(directory).rank == 1
    asked, failed = ((tmp_path / name).stat().st_mtime for name in ("asked", "failed"))
    assert asked - failed > 0.9


def test_a_victim_of_a_rank_that_ended_early_says_which(launched: Launched) -> None:
    program = """
        if rank == 0:
            sys.exit(0)
        # Ended by us, and not early.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while os.path.exists(f"/proc/{os.getppid()}/task") and rank == 1:
            time.sleep(0.1)
            raise RuntimeError("Connection closed by peer")
        time.sleep(600)
    """
    directory, _ = launched(code(program), ranks=3, grace=0.2)
    record = ended(directory)
    assert (record.code, record.rank) == (1, 1)
    assert "rank 0 had ended with exit code 0" in record.reason


def test_the_rank_that_others_have_waited_for_in_vain_is_named(launched: Launched) -> None:
    program = """
        if rank == 1:
            time.sleep(600)
        raise RuntimeError("gloo/transport/tcp/buffer.cc:72] Timed out waiting 1000ms for recv")
    """
    directory, _ = launched(code(program), ranks=3, grace=0.2)
    record = ended(directory)
    assert record.rank in (0, 2)
    assert record.reason.endswith("(rank 1 was still running)")


def test_a_killed_rank_is_named_with_its_signal(launched: Launched, eventually: Eventually) -> None:
    directory, _ = launched(code("time.sleep(600)"), ranks=2)
    eventually((directory / SupervisorRecord.KEY).exists)
    eventually((directory.parent / "here-1").exists)
    os.kill(pids(directory)[1], signal.SIGKILL)
    record = ended(directory)
    assert (record.cause, record.signal, record.rank) == ("killed", "SIGKILL", 1)


def test_lines_of_ranks_are_whole_in_the_logs_and_where_it_was_started(
    prepared: Prepared,
) -> None:
    program = """
        for number in range(200):
            for piece in (f"rank {rank} ", "line ", f"{number}\\n"):
                os.write(1, piece.encode())
        if rank == 1:
            print("a warning", file=sys.stderr)
            raise ValueError("of rank 1")
        time.sleep(600)
    """
    directory = prepared(code(program), ranks=2, forward=True)
    started = subprocess.run(
        [sys.executable, "-c", START, directory], capture_output=True, text=True, check=False
    )
    own = [[f"rank {rank} line {number}" for number in range(200)] for rank in range(2)]
    assert started.stdout.splitlines() == own[0]
    errors = started.stderr.splitlines()
    assert errors[0] == "[rank 1] Traceback (most recent call last):"
    assert errors[-1] == "[rank 1] ValueError: of rank 1"
    assert "a warning" not in started.stderr
    logs = [(directory / f"logs/{rank}.txt").read_text().splitlines() for rank in range(2)]
    assert logs[0] == own[0]
    assert [line for line in logs[1] if line.startswith("rank 1 line")] == own[1]
    merged = (directory / "log.txt").read_text().splitlines()
    assert sorted(merged) == sorted(
        f"[rank {rank}] {line}" for rank, log in enumerate(logs) for line in log
    )
    assert vinedresser("logs", "run", cwd=directory.parent).stdout.splitlines() == own[0]
    assert (
        vinedresser("logs", "run", "--rank", "1", cwd=directory.parent).stdout.splitlines()
        == logs[1]
    )
    assert vinedresser("logs", "run", "--merge", cwd=directory.parent).stdout.splitlines() == merged
    missing = vinedresser("logs", "run", "--rank", "2", cwd=directory.parent)
    assert missing.returncode == 2
    assert "has ranks 0 to 1" in missing.stderr


def test_a_log_is_followed_to_the_end_of_the_run(launched: Launched, tmp_path: Path) -> None:
    program = """
        print("begun", rank)
        while not pathlib.Path("go").exists():
            time.sleep(0.005)
        print("done", rank)
    """
    directory, _ = launched(code(program), ranks=2)
    command = [sys.executable, "-m", "vinedresser", "logs", str(directory), "--rank=1", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "begun 1\n"
        (tmp_path / "go").touch()
        assert reader.communicate(timeout=60)[0] == "done 1\n"
    assert reader.returncode == 0


def test_a_stop_reaches_every_rank(launched: Launched, eventually: Eventually) -> None:
    program = """
        def save(*_):
            pathlib.Path(f"saved-{rank}").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        pathlib.Path(f"ready-{rank}").touch()
        while True:
            time.sleep(0.01)
    """
    directory, _ = launched(code(program), ranks=2)
    for rank in range(2):
        eventually((directory.parent / f"ready-{rank}").exists)
    request_stop(directory, reason="enough")
    record = ended(directory)
    assert (record.cause, record.reason, record.rank) == ("stopped", "enough", None)
    assert [(directory.parent / f"saved-{rank}").exists() for rank in range(2)] == [True, True]


def test_all_ranks_end_in_order_when_the_supervisor_is_killed(
    launched: Launched, eventually: Eventually
) -> None:
    program = """
        def save(*_):
            time.sleep(0.2)
            pathlib.Path(f"saved-{rank}").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        pathlib.Path(f"ready-{rank}").touch()
        time.sleep(600)
    """
    directory, supervisor = launched(code(program), ranks=2)
    for rank in range(2):
        eventually((directory.parent / f"ready-{rank}").exists)
    ranks = pids(directory)
    supervisor.kill()
    supervisor.wait()
    assert settle(directory).cause == "killed"
    assert [(directory.parent / f"saved-{rank}").exists() for rank in range(2)] == [True, True]
    assert [identify(pid) for pid in ranks] == [None, None]


def test_a_program_that_cannot_be_started_leaves_no_rank(prepared: Prepared) -> None:
    directory = prepared(argv=["/dev/null"], ranks=2)
    with pytest.raises(LaunchError):
        start(directory)
    assert ended(directory).cause == "crashed"


# As py-spy prints them.
SPY = """#!/bin/sh
[ "$1 $2 $3 $4" = "dump --nonblocking --json --pid" ] || exit 1
cat <<END
[{"os_thread_id": 1, "thread_name": null, "frames": []},
 {"os_thread_id": $5, "thread_name": null, "frames": [
  {"name": "load", "filename": "train.py", "line": 3, "locals": null},
  {"name": "<module>", "filename": "train.py", "line": 9, "locals": null}]}]
END
"""


@pytest.mark.parametrize(
    ("spy", "frames"),
    [
        (SPY, [["train.py", 3, "load"], ["train.py", 9, "<module>"]]),
        ("#!/bin/sh\necho Permission Denied >&2; exit 1\n", []),
        ("#!/bin/sh\nexec sleep 100\n", []),
    ],
)
def test_where_a_rank_stands_that_does_not_say_so(  # noqa: PLR0917
    spy: str,
    frames: list[list[object]],
    launched: Launched,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "bin/py-spy"
    program.parent.mkdir()
    program.write_text(spy, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    directory, _ = launched(code("time.sleep(600)"), ranks=2)
    eventually(lambda: all((tmp_path / f"here-{rank}").exists() for rank in (0, 1)))
    storage = LocalStorage(directory)
    write_record(storage, StacksRequest(time.time()))
    eventually(lambda: storage.exists(StacksRecord.KEY))
    found = read_record(storage, StacksRecord)
    assert found is not None
    assert [one["frames"] for one in found.ranks] == [frames, frames]
