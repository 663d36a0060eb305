"""The environment in which Prefect is imported: whose server, whose home, no telemetry.

Without a server of the user's, Prefect starts an embedded one for the life of the process. Two
such processes on one home get into each other's way, so each store has a home of its own.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from vinedresser.infra.guard import guard_descendants

__all__ = ["prepare_prefect"]


def prepare_prefect(store: Path) -> None:
    """Set the environment for Prefect in this process; call it before prefect is imported.

    It also starts a guard: should this process be killed, the embedded server would live on.

    Args:
        store: the store that the flow works on.
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
    guard_descendants()


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
