"""Unreachable, full and killed stores; killed trainings and relays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.capture.hook.s3_training import batch, check_steps
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.infra.services.servers.standing import make_bucket
from vinedresser.objects import open_storage
from vinedresser.objects.s3_client import s3_client
from vinedresser.processes import identify, is_alive
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.records import Heartbeat
from vinedresser.store.relay_process import recover_spools
from vinedresser.store.spool import lock_spool, spools
from vinedresser.testing.s3_server import BUCKET, TestServer, seaweed

SCRIPT = Path(__file__).with_name("s3_training.py")
INPUTS = {"inputs": SaveConfig(every=1)}


@pytest.fixture(scope="module")
def frail_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Return a server for one test, which may kill it."""
    with seaweed(tmp_path_factory.mktemp("frail")) as server:
        yield server


@pytest.fixture
def frail(
    frail_server: TestServer, s3: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[TestServer, str]:
    """Return the server and the URL of a location on it."""
    for name, value in frail_server.environment.items():
        monkeypatch.setenv(name, value)
    return frail_server, f"{s3}/run"


@pytest.fixture
def bucket(s3: str, s3_server: TestServer) -> Iterator[str]:
    """Return the URL of a bucket of its own, for a test that captures as fast as it can.

    Its space is free again after the test; that of single objects SeaweedFS frees much later.
    """
    name = uuid.uuid4().hex
    make_bucket(name, s3_server.environment)
    yield s3.replace(BUCKET, name, 1)
    s3_client().delete_bucket(Bucket=name)


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until a condition is true.

    A server that has just been restarted may leave a request without an answer, which is sent again
    after 30 s.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


def start(url: str, steps: int = 0, pause: float = 0.02) -> subprocess.Popen[str]:
    """Start a training; STEPS=0 means endless."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), url, str(steps), str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent)},
    )


def await_step(trainer: subprocess.Popen[str], step: int) -> None:
    """Read a training's output until it has finished a step."""
    assert trainer.stdout is not None
    for line in trainer.stdout:
        if int(line) >= step:
            return
    raise AssertionError(f"ended before step {step}")


def relay_of(folder: Path) -> int:
    """Return the process id of the relay of a spool."""
    wanted = str(folder).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = entry.joinpath("cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"vinedresser.infra.supervise.relay" in words and wanted in words:
                return int(entry.name)
    raise AssertionError(f"{folder} has no relay")


def another_relay(folder: Path, former: int) -> bool:
    """Return whether a spool has a relay other than a process."""
    try:
        return relay_of(folder) != former
    except AssertionError:
        return False


def is_busy(folder: Path) -> bool:
    """Return whether a spool has a relay."""
    lock = lock_spool(folder)
    if lock is not None:
        os.close(lock)
    return lock is None


def outage(server: TestServer, url: str, seconds: float, *, pause: bool) -> list[str]:
    """Train while the server is temporarily unavailable; return the reported problems."""
    with Hook(url, collections=INPUTS) as hook:
        step = 0
        until = time.monotonic() + 1.2
        away = False
        while time.monotonic() < until or not away:
            before = time.monotonic()
            hook.step(inputs=batch(step), loss=step / 2)
            # The training does not wait for the network.
            assert time.monotonic() - before < 1.0
            step += 1
            time.sleep(0.2)
            if time.monotonic() >= until and not away:
                away = True
                server.pause() if pause else server.kill()
                until = time.monotonic() + seconds
        server.resume() if pause else server.restart()
    run = open_run(url)
    assert check_steps(run) == step
    assert run.status.state == "finished"
    assert spools() == []
    return hook.problems


@pytest.mark.thorough
def test_a_killed_and_restarted_server_loses_nothing(
    frail: tuple[TestServer, str],
) -> None:
    said = [one for one in outage(*frail, 4.0, pause=False) if "waiting for the upload" not in one]
    assert len(said) == 2
    assert re.search(r"no server answers at http://.* uploaded later; training continues", said[0])
    assert re.search(r"takes uploads again, after \d+ s; nothing was lost", said[1])


@pytest.mark.slow
def test_a_temporarily_unresponsive_server_loses_nothing(
    frail: tuple[TestServer, str],
) -> None:
    outage(*frail, 3.0, pause=True)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [False, True])
def test_a_minute_without_the_server_loses_nothing(
    frail: tuple[TestServer, str], pause: bool
) -> None:
    outage(*frail, 60.0, pause=pause)


@pytest.mark.slow
def test_a_full_bucket_is_reported_once_and_uploads_resume_with_space(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinedresser.capture.run.uploading._PATIENCE", 4.0)
    with seaweed(tmp_path / "server", volume_megabytes=4, volumes=4) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/run"
        with Hook(url, collections=INPUTS) as hook:
            for step in range(24):
                hook.step(inputs=batch(step), loss=step / 2)
                time.sleep(0.05)
        full = [problem for problem in hook.problems if "no space left" in problem]
        assert len(full) == 1
        assert "training continues" in full[0]
        assert any(
            "the upload to s3://" in problem and "is not complete" in problem
            for problem in hook.problems
        )
        (spool,) = spools()
        os.kill(relay_of(spool), signal.SIGKILL)
        eventually(lambda: not is_busy(spool))
        stored = check_steps(open_run(url))
        assert 0 < stored < 24
        server.kill()
        server.restart(volumes=16)
        assert recover_spools(print, timeout=60) == [(url, True)]
        assert check_steps(open_run(url)) == 24
        assert open_run(url).status.state == "finished"
        assert spools() == []


@pytest.mark.thorough
def test_committed_data_of_a_killed_training_is_uploaded(bucket: str) -> None:
    url = f"{bucket}/run"
    with start(url) as trainer:
        await_step(trainer, 60)
        trainer.kill()
        trainer.communicate()
    # Until the relay has reported the end, the run counts as dead.
    eventually(lambda: open_run(url).status.state == "killed")
    run = open_run(url)
    assert check_steps(run) >= 20
    # No process was left that could take over from the relay.
    eventually(lambda: not spools())


@pytest.mark.thorough
def test_a_killed_relay_is_restarted(bucket: str) -> None:
    url = f"{bucket}/run"
    with Hook(url, collections=INPUTS) as hook:
        for step in range(60):
            hook.step(inputs=batch(step), loss=step / 2)
            time.sleep(0.02)
            if step in (20, 40):
                (spool,) = spools()
                relay = relay_of(spool)
                os.kill(relay, signal.SIGKILL)
                eventually(partial(another_relay, spool, relay))
    # On a busy machine the hook waits for the upload, and says so.
    assert hook.problems[0] == "the upload process was killed; restarting it"
    assert not any("killed" in problem for problem in hook.problems[1:])
    assert check_steps(open_run(url)) == 60
    assert open_run(url).status.state == "finished"
    assert spools() == []


def begin_claiming(server: TestServer, url: str) -> tuple[subprocess.Popen[str], Path, int]:
    """Start a training of 3 steps whose relay waits for the server.

    Returns:
        The training, its spool, and the process id of its relay.
    """
    server.pause()
    trainer = start(url, steps=3)
    eventually(lambda: spools() and another_relay(spools()[0], 0))
    (spool,) = spools()
    return trainer, spool, relay_of(spool)


@pytest.mark.thorough
def test_a_relay_killed_while_the_hook_is_created_is_restarted(
    frail: tuple[TestServer, str],
) -> None:
    server, url = frail
    trainer, spool, relay = begin_claiming(server, url)
    os.kill(relay, signal.SIGKILL)
    eventually(partial(another_relay, spool, relay))
    server.resume()
    output, said = trainer.communicate(timeout=60)
    assert (trainer.returncode, output.split()) == (0, ["0", "1", "2"]), said
    assert said == "vinedresser: the upload process was killed; restarting it\n"
    assert check_steps(open_run(url)) == 3
    assert open_run(url).status.state == "finished"
    assert spools() == []


@pytest.mark.thorough
def test_without_a_relay_nothing_is_captured_and_the_training_continues(
    frail: tuple[TestServer, str],
) -> None:
    server, url = frail
    trainer, spool, relay = begin_claiming(server, url)
    for _ in range(4):
        os.kill(relay, signal.SIGKILL)
        eventually(partial(another_relay, spool, relay))
        relay = relay_of(spool)
    os.kill(relay, signal.SIGKILL)
    output, said = trainer.communicate(timeout=60)
    server.resume()
    assert (trainer.returncode, output.split()) == (0, ["0", "1", "2"]), said
    (line,) = said.splitlines()
    assert line.startswith("vinedresser: nothing is captured: ")
    assert line.endswith("; training continues")
    assert spools() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "pause", [0.19, *(pytest.param(n / 37, marks=pytest.mark.slow) for n in range(10))]
)
def test_the_spool_of_a_crashed_machine_is_uploaded_later(bucket: str, pause: float) -> None:
    url = f"{bucket}/run"
    with start(url, pause=0.0) as trainer:
        await_step(trainer, 40)
        time.sleep(pause)
        (spool,) = spools()
        os.kill(trainer.pid, signal.SIGSTOP)
        relay = identify(relay_of(spool))
        assert relay is not None
        os.kill(relay.pid, signal.SIGKILL)
        trainer.kill()
        trainer.communicate()
    eventually(lambda: not is_alive(relay))
    # Readers never see incomplete data. Without a heartbeat there it may be about to start, for a
    # minute.
    begun = open_storage(url).list(f"{Heartbeat.KEY}/")
    assert open_run(url).status.state == ("dead" if begun else "running")
    first = check_steps(open_run(url))
    assert recover_spools(print, timeout=60) == [(url, True)]
    assert check_steps(open_run(url)) >= max(first, 1)
    assert open_run(url).status.state == "killed"
    assert spools() == []
    assert recover_spools(print, timeout=60) == []


@pytest.mark.thorough
def test_the_next_hook_uploads_abandoned_spools(bucket: str) -> None:
    with start(f"{bucket}/first", pause=0.0) as trainer:
        await_step(trainer, 30)
        (spool,) = spools()
        os.kill(trainer.pid, signal.SIGSTOP)
        os.kill(relay_of(spool), signal.SIGKILL)
        trainer.kill()
        trainer.communicate()
    with Hook(f"{bucket}/second") as hook:
        hook.step(loss=1.0)
        eventually(lambda: open_run(f"{bucket}/first").status.state == "killed")
        assert check_steps(open_run(f"{bucket}/first")) > 0
    eventually(lambda: not spools())


@pytest.mark.thorough
def test_another_writer_is_reported_and_overwrites_nothing(s3: str) -> None:
    url = f"{s3}/run"
    intruder = b"what another process wrote"
    with Hook(url, collections=INPUTS) as hook:
        hook.step(inputs=batch(0), loss=0.0)
        hook.flush()
        eventually(lambda: check_steps(open_run(url)) == 1)
        open_storage(url).put("index/0/000000000001.json", [intruder])
        for step in range(1, 30):
            hook.step(inputs=batch(step), loss=0.0)
    assert any("another process writes this run" in problem for problem in hook.problems)
    assert open_storage(url).get("index/0/000000000001.json") == intruder
    assert len(spools()) == 1


def take_forty_steps(hook: Hook, server: TestServer, *, one_by_one: bool) -> None:
    """Take steps, of which the server accepts only the first.

    Args:
        one_by_one: a segment for each, so that some of them find the spool full: a writer that
            gets no processor puts all that waits into one.
    """
    hook.step(inputs=batch(0), loss=0.0)
    hook.flush()
    server.pause()
    for step in range(1, 40):
        hook.step(inputs=batch(step), loss=0.0)
        if one_by_one:
            hook.flush()


@pytest.mark.thorough
def test_a_full_spool_drops_steps_and_reports_it(
    frail: tuple[TestServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = frail
    monkeypatch.setenv("VINEDRESSER_SPOOL_MIB", "16")
    with Hook(url, collections=INPUTS, policy="drop") as hook:
        take_forty_steps(hook, server, one_by_one=True)
        server.resume()
    assert any("the spool is full" in problem for problem in hook.problems)
    steps = open_run(url).steps().tolist()
    assert 16 <= len(steps) < 40


@pytest.mark.thorough
def test_a_full_spool_waits_and_reports_it(
    frail: tuple[TestServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = frail
    monkeypatch.setenv("VINEDRESSER_SPOOL_MIB", "8")
    with Hook(url, collections=INPUTS, policy="block") as hook:
        take_forty_steps(hook, server, one_by_one=False)
        eventually(
            lambda: any("the training may have to wait" in problem for problem in hook.problems)
        )
        assert not hook.flush(0.5)
        server.resume()
    assert check_steps(open_run(url)) == 40
