"""The environment in which Prefect is imported: whose server, whose home, no telemetry.

Without a server of the user's, Prefect starts an embedded one for the life of the process. Two
such processes on one home get into each other's way, so each store has a home of its own.
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

# Seconds that a server which was named has to answer, and between two tries.
_PATIENCE, _LOOK = 60.0, 0.5


def prepare_prefect(store: Path) -> None:
    """Set the environment for Prefect in this process; call it before prefect is imported.

    It also starts a guard: should this process be killed, the embedded server would live on.

    Args:
        store: the store that the flow works on.

    Raises:
        LaunchError: the server that ``PREFECT_API_URL`` names does not answer for a minute.
    """
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLI_PROMPT", "false")
    if not _has_server():
        home = store.absolute() / ".vinedresser" / "prefect"
        # Prefect makes the last part of the path only.
        home.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("PREFECT_HOME", str(home))
        # The first start makes a database; on a busy machine the default of 20 s is not enough.
        os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    else:
        _await_server(os.environ.get("PREFECT_API_URL"))
    guard_descendants()


def find_prefect() -> None:
    """Set the environment for a Prefect server that stays; call it before prefect is imported.

    That is the one of ``PREFECT_API_URL`` or Prefect's profile, or else that of `vinedresser up`.

    Raises:
        ConfigError: there is none.
    """
    standing = standing_prefect()
    named = os.environ.get("PREFECT_API_URL")
    if standing is not None and (named == f"{standing.url}/api" or not (named or _has_server())):
        os.environ.update(standing.environment())
    elif not _has_server():
        raise ConfigError(
            "no Prefect server is known: `vinedresser up` starts one on this machine; the address "
            "of another one belongs into PREFECT_API_URL"
        )
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLI_PROMPT", "false")


def _await_server(url: str | None) -> None:
    """Wait until a server answers: it may have been killed, and be about to come back."""
    if not url:
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5.0).close()  # noqa: S310 - Prefect's
        except urllib.error.HTTPError:
            # Whatever it says, it is there.
            return
        except (OSError, ValueError) as error:
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"Prefect's server at {url}, as PREFECT_API_URL says, does not answer: {error}"
                ) from error
        else:
            return
        time.sleep(_LOOK)


def _has_server() -> bool:
    """Say whether the user has told Prefect which server to use."""
    if "PREFECT_API_URL" in os.environ:
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    try:
        document = tomllib.loads((home / "profiles.toml").read_text(encoding="utf-8"))
    except (FileNotFoundError, tomllib.TOMLDecodeError):
        # A broken file is Prefect's to complain about.
        return False
    active = os.environ.get("PREFECT_PROFILE", document.get("active"))
    return "PREFECT_API_URL" in document.get("profiles", {}).get(active, {})
