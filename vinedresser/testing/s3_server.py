"""A real S3 server for tests that can be paused, killed and restarted."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.infra.guard import start_guard
from vinedresser.infra.services.servers.local_server import LocalServer, stop_server
from vinedresser.infra.services.servers.seaweed import (
    IDENTITIES,
    S3Account,
    account_in,
    start_seaweed,
)
from vinedresser.infra.services.servers.seaweed_sockets import remove_sockets
from vinedresser.infra.services.servers.standing import make_bucket
from vinedresser.store.records import FLOW_VARIABLE

__all__ = ["BUCKET", "TestServer", "seaweed"]

BUCKET = "tests"


class TestServer:
    """SeaweedFS on a free port, with one bucket; it ends with this process, even if that is killed.

    Args:
        folder: empty folder for its files.
        volume_megabytes: size of the files in which it packs objects.
        volumes: maximum number of these files.
        policy: policy of a member, as JSON in the language of AWS's IAM; "" for none.

    Attributes:
        environment: environment variables for its clients.
        stranger: the same for clients that may only list objects.
        member: the same for clients with the policy.
    """

    # Not a test class, despite its name.
    __test__ = False

    def __init__(
        self, folder: Path, *, volume_megabytes: int = 64, volumes: int = 32, policy: str = ""
    ) -> None:
        self._folder = folder
        self._size = (volume_megabytes, volumes)
        marker = uuid.uuid4().hex
        self._marker = {FLOW_VARIABLE: marker}
        self._guard = start_guard(f"{FLOW_VARIABLE}={marker}")
        account = account_in(folder)
        stranger, member = S3Account("stranger", "secret"), S3Account("member", "secret")
        identities = json.loads((folder / IDENTITIES).read_text(encoding="utf-8"))
        rights = {stranger: {"actions": ["List"]}}
        if policy:
            identities["policies"] = [{"name": "members", "content": policy}]
            rights[member] = {"policyNames": ["members"]}
        for one, right in rights.items():
            credentials = [{"accessKey": one.access_key, "secretKey": one.secret_key}]
            identity = {"name": one.access_key, "credentials": credentials, **right}
            identities["identities"].append(identity)
        (folder / IDENTITIES).write_text(json.dumps(identities), encoding="utf-8")
        self._server = self._start(0)
        self.environment = account.environment(self._server.url)
        self.stranger = stranger.environment(self._server.url)
        self.member = member.environment(self._server.url)
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
        """The port of the S3 API, on the loopback interface."""
        return int(self._server.url.rpartition(":")[2])

    def pause(self) -> None:
        """Suspend the server: it accepts connections, but does not respond."""
        os.killpg(self._server.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.killpg(self._server.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server; stored objects remain."""
        self.resume()
        stop_server(self._server, grace=0.0)

    def restart(self, *, volumes: int | None = None) -> None:
        """Restart the server after `kill`, on the same port.

        Args:
            volumes: new maximum number of volumes; None: unchanged.
        """
        megabytes, known = self._size
        self._size = (megabytes, volumes or known)
        self._server = self._start(self.port)

    def close(self) -> None:
        """Stop the server and its guard."""
        stop_server(self._server, grace=0.0)
        remove_sockets(self._folder)
        self._guard.kill()
        self._guard.wait()


@contextmanager
def seaweed(
    folder: Path, *, volume_megabytes: int = 64, volumes: int = 32, policy: str = ""
) -> Iterator[TestServer]:
    """Run a server during the block; see `TestServer`."""
    server = TestServer(folder, volume_megabytes=volume_megabytes, volumes=volumes, policy=policy)
    try:
        yield server
    finally:
        server.close()
