"""A real S3 server for tests: started, stopped, halted and killed at will."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.infra.guard import start_guard
from vinedresser.infra.servers.local_server import LocalServer, stop_server
from vinedresser.infra.servers.seaweed import account_in, start_seaweed
from vinedresser.infra.servers.seaweed_sockets import remove_sockets
from vinedresser.infra.servers.standing import make_bucket
from vinedresser.store.records import FLOW_VARIABLE

__all__ = ["BUCKET", "TestServer", "seaweed"]

BUCKET = "tests"


class TestServer:
    """SeaweedFS on a free port, with one bucket; it ends with this process, however that ends.

    Args:
        folder: for its files, empty.
        volume_megabytes: size of the files in which it packs objects.
        volumes: how many of them there may be: together with their size, how much room there is.

    Attributes:
        environment: the variables by which programs find it.
    """

    # What pytest would else take for a test.
    __test__ = False

    def __init__(self, folder: Path, *, volume_megabytes: int = 64, volumes: int = 32) -> None:
        self._folder = folder
        self._size = (volume_megabytes, volumes)
        marker = uuid.uuid4().hex
        self._marker = {FLOW_VARIABLE: marker}
        self._guard = start_guard(f"{FLOW_VARIABLE}={marker}")
        self._server = self._start(0)
        self.environment = account_in(folder).environment(self._server.url)
        make_bucket(BUCKET, self.environment)

    def _start(self, port: int) -> LocalServer:
        megabytes, volumes = self._size
        return start_seaweed(
            self._folder,
            port=port,
            volume_megabytes=megabytes,
            volumes=volumes,
            environment=self._marker,
        )

    @property
    def port(self) -> int:
        """Where S3 is served, on loopback."""
        return int(self._server.url.rpartition(":")[2])

    def pause(self) -> None:
        """Let it take connections, but answer nobody."""
        os.killpg(self._server.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.killpg(self._server.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word; what it has stored stays."""
        self.resume()
        stop_server(self._server, grace=0.0)

    def restart(self, *, volumes: int | None = None) -> None:
        """Start it anew after `kill`, where it was; with more room if told so."""
        megabytes, known = self._size
        self._size = (megabytes, volumes or known)
        self._server = self._start(self.port)

    def close(self) -> None:
        """End it and the guard."""
        stop_server(self._server, grace=0.0)
        remove_sockets(self._folder)
        self._guard.kill()
        self._guard.wait()


@contextmanager
def seaweed(folder: Path, *, volume_megabytes: int = 64, volumes: int = 32) -> Iterator[TestServer]:
    """Run a server as long as the block does; see `TestServer`."""
    server = TestServer(folder, volume_megabytes=volume_megabytes, volumes=volumes)
    try:
        yield server
    finally:
        server.close()
