"""Whether processes that are in no process group may exchange data."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from vinedresser.capture.run.connections import connected
from vinedresser.processes import ProcessIdentity, identify

# Runs its argument, prints a number that is known then, and lives on.
PEER = "import sys\nport = 0\nexec(sys.argv[1])\nprint(port, flush=True)\nsys.stdin.read()"
SERVES = "import socket; s = socket.create_server(('127.0.0.1', 0)); port = s.getsockname()[1]"


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
