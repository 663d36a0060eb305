"""Whether processes that are in no process group may exchange data."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from vinedresser.capture.hook.ranks import RanksApart
from vinedresser.capture.run import connections
from vinedresser.capture.run.connections import connected
from vinedresser.objects import LocalStorage
from vinedresser.processes import ProcessIdentity, descendants, identify
from vinedresser.store.records import Heartbeat, heartbeat_key, write_record

# Runs its argument, prints a number that is known then, and lives on.
PEER = "import sys\nport = 0\nexec(sys.argv[1])\nprint(port, flush=True)\nsys.stdin.read()"
SERVES = "import socket; s = socket.create_server(('127.0.0.1', 0)); port = s.getsockname()[1]"


@pytest.fixture(autouse=True)
def childless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the servers of other tests, which are children of this process."""
    own = os.getpid()
    monkeypatch.setattr(
        connections, "descendants", lambda pid: [] if pid == own else descendants(pid)
    )


@contextmanager
def peer(code: str = "") -> Iterator[tuple[ProcessIdentity, int]]:
    command = [sys.executable, "-c", PEER, code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        number = int(process.stdout.readline())
        found = identify(process.pid)
        assert found is not None
        yield found, number
        process.stdin.close()


def connects(port: int) -> str:
    return f"import socket; s = socket.create_connection(('127.0.0.1', {port}))"


def test_processes_without_anything_between_them_are_apart() -> None:
    with peer() as (one, _), peer(SERVES) as (two, _):
        assert not connected([one, two])
    # They have ended.
    assert not connected([one])


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_a_connection_connects(host: str) -> None:
    both = ":" in host
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server((host, 0), family=family, dualstack_ipv6=both)
    with closing(server), peer(connects(server.getsockname()[1])) as (found, _):
        accepted, _ = server.accept()
        with closing(accepted):
            assert connected([found])


def test_connections_to_the_same_server_connect() -> None:
    with peer(SERVES) as (server, port), peer(connects(port)) as (found, _):
        assert not connected([server, found])
        with closing(socket.create_connection(("127.0.0.1", port))):
            assert connected([found])


def test_an_accepted_unix_socket_connects(tmp_path: Path) -> None:
    place = str(tmp_path / "s")
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(place)
        server.listen()
        joins = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({place!r})"
        with peer(joins) as (found, _):
            accepted, _ = server.accept()
            with closing(accepted):
                assert connected([found])


def test_shared_memory_connects() -> None:
    memory = SharedMemory(create=True, size=4096)
    try:
        opens = (
            f"import mmap; f = open('/dev/shm/{memory.name}', 'r+b'); m = mmap.mmap(f.fileno(), 0)"
        )
        with peer(opens) as (found, _):
            assert connected([found])
    finally:
        memory.close()
        memory.unlink()


def test_a_peer_on_another_machine_is_reached_by_outer_connections_only() -> None:
    with peer() as (found, _):
        assert not connected([replace(found, host="elsewhere")])


def test_nobody_is_apart_by_what_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer() as (found, _):
        folder = f"/proc/{found.pid}/fd"
        known = os.listdir

        def listed(place: str) -> list[str]:
            if place == folder:
                raise PermissionError(13, "Permission denied", place)
            return known(place)

        assert not connected([found])
        monkeypatch.setattr(os, "listdir", listed)
        assert connected([found])


def test_ranks_are_apart_while_both_train(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "run")
    said: list[str] = []
    apart = RanksApart(lambda: "torch", storage, 0, 2, said.append)

    def beats(found: ProcessIdentity, *, closed: bool = False) -> None:
        beat = Heartbeat(1, asdict(found), 9, time.time(), closed=closed)
        write_record(storage, beat, key=heartbeat_key(1))

    with peer() as (found, _):
        beats(found)
    # Once it has ended, its connections are no longer known.
    apart.look(5)
    with peer() as (found, _):
        beats(found, closed=True)
        apart.look(10)
        assert said == []
        beats(found)
        apart.look(20)
    assert "rank 0 of 2 has not called" in said[0]
    assert "is not connected to rank 1, which trains, too" in said[0]
