"""The process of a flow's private Prefect server, started by `start_private_prefect`.

It ends when the flow's process does, however that ends: it watches that process itself, so no
third process has to survive. Its folder then goes, too.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vinedresser.foreign_signals import handle_foreign
from vinedresser.infra.services.database_template import database_template
from vinedresser.processes import ProcessIdentity, wait_for_end

if TYPE_CHECKING:
    from fastapi import FastAPI

_DATABASE = "prefect.db"
# Attempts to remove the server's folder, since its other threads may still create files there.
_REMOVALS = 100
_SETTINGS = {
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_UI_ENABLED": "false",
    # What a flow does not need: types of blocks, stored events and their triggers.
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}


def main(arguments: Sequence[str]) -> int:
    """Serve Prefect's API until the owner ends."""
    parser = argparse.ArgumentParser(prog="prefect_process", allow_abbrev=False)
    parser.add_argument("--folder", required=True, type=Path, help="for the server's files alone")
    parser.add_argument("--socket", required=True, type=int, help="descriptor that listens")
    parser.add_argument("--ready", required=True, type=int, help="gets a byte when it serves")
    parser.add_argument(
        "--owner", required=True, type=lambda text: ProcessIdentity(**json.loads(text))
    )
    options = parser.parse_args(arguments)
    handle_foreign()
    watch = threading.Thread(target=_end_with, args=(options.owner, options.folder), daemon=True)
    watch.start()
    _configure(options.folder)
    # Nothing of an import becomes garbage: looking for it would take a fifth of the start.
    gc.disable()
    _provide_database(options.folder)
    app = _app()
    gc.freeze()
    gc.enable()
    return _serve(app, socket.socket(fileno=options.socket), options.ready)


def _end_with(owner: ProcessIdentity, folder: Path) -> None:
    wait_for_end(owner)
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    os._exit(0)


def _configure(folder: Path) -> None:
    """Set what Prefect reads when it is imported."""
    database = f"sqlite+aiosqlite:///{folder / _DATABASE}"
    own = {"PREFECT_HOME": str(folder), "PREFECT_API_DATABASE_CONNECTION_URL": database}
    os.environ |= _SETTINGS | own
    # It also reads settings from files in the working directory.
    os.chdir(folder)


def _provide_database(folder: Path) -> None:
    """Copy a database with Prefect's tables, unless this server is the first and makes them."""
    import prefect

    database = folder / _DATABASE

    @contextmanager
    def made() -> Iterator[Path]:
        from prefect.server.database import provide_database_interface

        asyncio.run(provide_database_interface().create_db())
        yield database

    template = database_template("prefect", prefect.__version__, made)
    if not database.exists():
        shutil.copyfile(template, database)


def _app() -> FastAPI:
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    app = create_app(ephemeral=True, final=True)
    # A web page whose name resolves to this machine is refused before it can try a password.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1"])
    return app


def _serve(app: FastAPI, listening: socket.socket, ready: int) -> int:
    """Serve until a signal; return 0, or 3 if the server could not start."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(ready, b"1")

    server = Server(uvicorn.Config(app, lifespan="on", log_level="error", access_log=False))
    server.run(sockets=[listening])
    return 0 if server.started else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
