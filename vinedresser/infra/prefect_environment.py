"""The environment in which Prefect is imported: server, home and no telemetry.

If the user names no server, Prefect starts an embedded one for the lifetime of the process. Two
such processes on one home interfere, so each store has its own home.
"""

from __future__ import annotations

import os
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.guard import guard_descendants
from vinedresser.infra.servers import standing_prefect

__all__ = ["find_prefect", "prepare_prefect"]

# Seconds that a configured server has to answer, and between two attempts.
_PATIENCE, _LOOK = 60.0, 0.5


def prepare_prefect(store: Path) -> None:
    """Set the environment for Prefect in this process; call it before prefect is imported.

    It also starts a guard, since the embedded server would survive a kill of this process.

    Args:
        store: the store of the flow.

    Raises:
        LaunchError: the server at ``PREFECT_API_URL`` does not answer within a minute.
    """
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLI_PROMPT", "false")
    if not _has_server():
        home = store.absolute() / ".vinedresser" / "prefect"
        # Prefect creates only the last component of the path.
        home.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("PREFECT_HOME", str(home))
        # The first start creates a database; on a busy machine the default of 20 s is too short.
        os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    else:
        _await_server(os.environ.get("PREFECT_API_URL"))
    guard_descendants()


def find_prefect() -> None:
    """Set the environment for a standing Prefect server; call it before prefect is imported.

    That is the server of ``PREFECT_API_URL`` or Prefect's profile, or else of `vinedresser up`.

    Raises:
        ConfigError: there is none.
    """
    standing = standing_prefect()
    named = os.environ.get("PREFECT_API_URL")
    if standing is not None and (named == f"{standing.url}/api" or not (named or _has_server())):
        os.environ.update(standing.environment())
    elif not _has_server():
        raise ConfigError(
            "no Prefect server configured: start one on this machine with `vinedresser up`, or set "
            "PREFECT_API_URL to the address of another"
        )
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLI_PROMPT", "false")


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


def _has_server() -> bool:
    """Return whether the user has configured a Prefect server."""
    if "PREFECT_API_URL" in os.environ:
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    try:
        document = tomllib.loads((home / "profiles.toml").read_text(encoding="utf-8"))
    except (FileNotFoundError, tomllib.TOMLDecodeError):
        # Prefect itself reports a broken file.
        return False
    active = os.environ.get("PREFECT_PROFILE", document.get("active"))
    return "PREFECT_API_URL" in document.get("profiles", {}).get(active, {})
