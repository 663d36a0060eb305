"""The environment in which Prefect is imported: server, home and no telemetry.

If the user names no server, this process gets a private one. Its address and password are known to
Prefect in this process only: no process that is started later, such as a training, inherits them.
"""

from __future__ import annotations

import gc
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.guard import guard_descendants
from vinedresser.infra.prefect_settings import has_server, refuse_settings
from vinedresser.infra.servers import standing_prefect, start_private_prefect

__all__ = ["find_prefect", "prepare_prefect", "use_standing"]

# Seconds that a configured server has to answer, and between two attempts.
_PATIENCE, _LOOK = 60.0, 0.5
# Their messages are for Prefect's pages.
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def prepare_prefect(store: Path) -> Callable[[], None]:
    """Provide a server for the flows of this process, and import Prefect meanwhile.

    Until the returned function is called, the interpreter does not look for garbage: nothing of the
    imports of Prefect, MLflow and the flows becomes any, and looking takes a fifth of their time.

    It also starts a guard, since judges and the private server would survive a kill of this
    process.

    Args:
        store: the store of the flows, or the folder of its state on this machine.

    Returns:
        A function that waits for the server. It raises `LaunchError` if the private server could
        not start, or if the server at ``PREFECT_API_URL`` does not answer within a minute.

    Raises:
        ConfigError: the store has settings for Prefect; see `refuse_settings`.
        StoreError: the folder for the files of a private server cannot be created.
    """
    refuse_settings(store)
    quiet = "PREFECT_LOGGING_LEVEL" not in os.environ
    _set_defaults()
    guard_descendants()
    gc.disable()
    if has_server():
        if quiet:
            _log_to_pages()
        return partial(_ready, partial(_await_server, os.environ.get("PREFECT_API_URL")))
    _reach_directly()
    server = start_private_prefect()
    home = {} if "PREFECT_HOME" in os.environ else {"PREFECT_HOME": str(server.home)}
    with _scoped({**server.environment(), **home}):
        # It reads its settings once, when it is imported.
        import prefect.main  # noqa: F401
    return partial(_ready, server.wait)


def _ready(wait: Callable[[], None]) -> None:
    """Look for garbage again, other than what was imported, and wait for the server."""
    gc.freeze()
    gc.enable()
    wait()


def find_prefect() -> None:
    """Set the environment for a standing Prefect server; call it before prefect is imported.

    Raises:
        ConfigError: there is none.
    """
    if not use_standing():
        raise ConfigError(
            "no Prefect server configured: start one on this machine with `vinedresser up`, or set "
            "PREFECT_API_URL to the address of another"
        )
    _set_defaults()


def use_standing() -> bool:
    """Set address and password of a standing Prefect server; return False if there is none.

    That is the server of ``PREFECT_API_URL`` or Prefect's profile, or else of `vinedresser up`.
    """
    standing = standing_prefect()
    named = os.environ.get("PREFECT_API_URL")
    if standing is not None and (named == f"{standing.url}/api" or not (named or has_server())):
        os.environ.update(standing.environment())
    return has_server()


def _set_defaults() -> None:
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLI_PROMPT", "false")


def _log_to_pages() -> None:
    """Have runs send their messages to the server, which keeps them, but not to the terminal."""
    for name in _RUN_LOGGERS:
        variable = f"PREFECT_LOGGING_LOGGERS_{name.upper().replace('.', '_')}_LEVEL"
        os.environ.setdefault(variable, "INFO")
        logging.getLogger(name).propagate = False


def _reach_directly() -> None:
    """Have Prefect reach its private server without a proxy, if the environment names one."""
    proxies = urllib.request.getproxies_environment()
    if proxies:
        value = ",".join(filter(None, (proxies.get("no"), "127.0.0.1")))
        os.environ |= {"no_proxy": value, "NO_PROXY": value}


@contextmanager
def _scoped(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the context."""
    before = {name: os.environ.pop(name, None) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _await_server(url: str | None) -> None:
    """Wait until a server answers: it may be restarting."""
    if not url:
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5.0).close()  # noqa: S310 - Prefect's
        except urllib.error.HTTPError:
            # Any answer will do.
            return
        except (OSError, ValueError) as error:
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"Prefect's server at {url} (PREFECT_API_URL) does not answer: {error}"
                ) from error
        else:
            return
        time.sleep(_LOOK)
