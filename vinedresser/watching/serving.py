"""The server of the pages, in this process, until it is interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from vinedresser.errors import ConfigError
from vinedresser.objects import Location, open_storage
from vinedresser.queries.live.prompt_connection import PromptConnection
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.records import RunRecord
from vinedresser.watching.access import KEY_VARIABLE, Access
from vinedresser.watching.application import application
from vinedresser.watching.people import People, Rights
from vinedresser.watching.site import LOOPBACK, Certificate, Site, listen
from vinedresser.watching.watched_store import WatchedStore


def watch(
    where: Location,
    port: int | None,
    ready: Callable[[str], None],
    *,
    host: str = LOOPBACK,
    people: People | None = None,
    owner: Rights = "read",
    certificate: Certificate | None = None,
) -> None:
    """Serve the pages of a store or a run until the process is interrupted.

    Args:
        where: the store, or a run.
        port: port; None: a free one.
        ready: called with the address of the page, with its key unless people have tokens, once
            connections are accepted.
        host: address of this machine at which it listens.
        people: who may use the pages; None: whoever has the address with the key.
        owner: rights of whoever has that.
        certificate: certificate for TLS; None: connections are not encrypted.

    Raises:
        ConfigError: the port is not free, the key in the environment can be guessed, or the address
            is not of loopback and there are no people or no certificate.
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """
    if isinstance(where, Path):
        # The name of "." is empty, and a run is known to its page by its name.
        where = where.resolve()
    store = RunStore(where)
    single = open_storage(where).exists(RunRecord.KEY)
    with listen(host, port) as listening:
        address, bound = listening.getsockname()[:2]
        if not ip_address(address).is_loopback and not (people and certificate):
            raise ConfigError(
                f"--host {host}: other machines can connect to it: give --tokens, --certificate "
                "and --private-key, or leave it out and use `ssh -L`"
            )
        site = Site(bound, _names(host, address, certificate), secure=certificate is not None)
        pages = application(WatchedStore(store, single=single))
        access = Access(pages, site, os.environ.get(KEY_VARIABLE, ""), people, owner)
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
            # Older versions of uvicorn would limit TLS 1.2 to the ciphers of TLS 1.0.
            ssl_ciphers=None,
            ssl_certfile=certificate and certificate.chain,
            ssl_keyfile=certificate and certificate.key,
        )
        ready(access.address)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            # Uvicorn has shut down in order, and raises the signal again.
            return


def _names(host: str, address: str, certificate: Certificate | None) -> tuple[str, ...]:
    """Return the names by which the server is reached, the best one first."""
    given = () if host == LOOPBACK or ip_address(address).is_unspecified else (host.lower(),)
    names = (*given, *(certificate.names if certificate else ()))
    return tuple(dict.fromkeys((*names, LOOPBACK, "localhost")))
