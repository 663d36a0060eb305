"""The environment in which Prefect is imported: server, home and messages.

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
from http.client import HTTPException
from pathlib import Path

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.guard import guard_descendants
from vinedresser.infra.services.prefect_settings import has_server, refuse_settings
from vinedresser.infra.services.servers import standing_prefect, start_private_prefect
from vinedresser.infra.services.telemetry import start_telemetry
from vinedresser.masking import masked_text

__all__ = ["find_prefect", "prepare_prefect", "require_server", "use_standing"]

# Seconds that a configured server has to answer, and between two attempts.
_PATIENCE, _LOOK = 60.0, 0.5
# Settings of the client of a private server, which nobody looks at, and which does not come back if
# it has ended: a request to it then fails after 6 s.
_PRIVATE = {"PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_CLIENT_MAX_RETRIES": "2"}
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
        not start, or if the configured one does not answer within a minute, and `ConfigError` if
        that one is no Prefect server or refuses the credentials.

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
        return partial(_ready, require_server)
    _reach_directly()
    server = start_private_prefect()
    home = {} if "PREFECT_HOME" in os.environ else {"PREFECT_HOME": str(server.home)}
    with _scoped({**_PRIVATE, **server.environment(), **home}):
        # It reads its settings once, when it is imported.
        import prefect.main  # noqa: F401

    def wait() -> None:
        server.wait()
        server.watch()

    return partial(_ready, wait)


def _ready(wait: Callable[[], None]) -> None:
    """Look for garbage again, other than what was imported; wait for the server, then trace."""
    gc.freeze()
    gc.enable()
    wait()
    start_telemetry()


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
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    # Otherwise a server that is away gives an error with kilobytes of data for each event.
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
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


def require_server(patience: float = _PATIENCE) -> None:
    """Wait until the configured server answers, which may be restarting, and try its credentials.

    Args:
        patience: seconds to wait.

    Raises:
        LaunchError: it does not answer in time.
        ConfigError: it refuses the credentials, or is no Prefect server of a compatible version.
    """
    from httpx import HTTPError, HTTPStatusError
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    api = get_current_settings().api
    if not api.url:
        return
    _await_server(api.url, patience)
    server = f"Prefect's server at {masked_text(api.url)}"
    try:
        with get_client(sync_client=True) as client:
            client.api_version()
    except (HTTPError, RuntimeError, TypeError, ValueError) as error:
        # Prefect wraps most errors.
        cause = error.__cause__ or error
        status = cause.response.status_code if isinstance(cause, HTTPStatusError) else None
        if status in (401, 403):
            if not api.key and api.auth_string is None:
                raise ConfigError(
                    f"{server} asks for credentials: set PREFECT_API_AUTH_STRING to user:password"
                ) from error
            name = "PREFECT_API_KEY" if api.key else "PREFECT_API_AUTH_STRING"
            raise ConfigError(f"{server} refuses the credentials in {name}") from error
        if status in (502, 503, 504) or (status is None and isinstance(cause, HTTPError)):
            raise LaunchError(f"{server} does not answer: {cause}") from error
        if "incompatible versions" in str(error):
            raise ConfigError(f"{server}: {error}") from error
        raise ConfigError(
            f"{server} (PREFECT_API_URL) is not the API of a Prefect server, which is usually at "
            "http://HOST:4200/api"
        ) from error


def _await_server(url: str, patience: float) -> None:
    """Wait until a server answers: it may be restarting."""
    deadline = time.monotonic() + patience
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{masked_text(url)} (PREFECT_API_URL): must be an address like http://HOST:4200/api"
        )
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5.0).close()  # noqa: S310 - Prefect's
        except urllib.error.HTTPError:
            # Any answer will do.
            return
        except (OSError, ValueError, HTTPException) as error:
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"Prefect's server at {masked_text(url)} (PREFECT_API_URL) does not answer: "
                    f"{error}"
                ) from error
        else:
            return
        time.sleep(_LOOK)
