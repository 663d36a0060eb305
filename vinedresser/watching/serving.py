"""The server of the pages: on loopback, in this process, until it is interrupted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from vinedresser.errors import ConfigError
from vinedresser.objects import Location, open_storage
from vinedresser.queries.live.prompt_connection import PromptConnection
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.records import RunRecord
from vinedresser.watching.access import KEY_VARIABLE, Access
from vinedresser.watching.application import application
from vinedresser.watching.watched_store import WatchedStore

__all__ = ["watch"]

_HOST = "127.0.0.1"
_MOST_PORTS = 65_535


def watch(where: Location, port: int | None, ready: Callable[[str], None]) -> None:
    """Serve the pages of a store or a run until the process is interrupted.

    Args:
        where: the store, or a run.
        port: port on loopback; None: a free one.
        ready: called with the address of the page, with its key, once connections are accepted.

    Raises:
        ConfigError: the port is not free, or the key in the environment can be guessed.
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """
    if isinstance(where, Path):
        # The name of "." is empty, and a run is known to its page by its name.
        where = where.resolve()
    store = RunStore(where)
    single = open_storage(where).exists(RunRecord.KEY)
    listening = _listen(port)
    pages = application(WatchedStore(store, single=single))
    access = Access(pages, listening.getsockname()[1], os.environ.get(KEY_VARIABLE, ""))
    config = uvicorn.Config(
        access,
        http=PromptConnection,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    ready(access.address)
    with listening:
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            # Uvicorn has shut down in order, and raises the signal again.
            return


def _listen(port: int | None) -> socket.socket:
    """Return a socket that accepts connections on loopback."""
    if port is not None and not 0 < port <= _MOST_PORTS:
        raise ConfigError(f"--port {port}: give a port from 1 to {_MOST_PORTS:,}")
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port or 0))
        listening.listen(128)
    except OSError as error:
        listening.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"--port {port}: {reason}; leave it out for a free port") from error
    return listening
