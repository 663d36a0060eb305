"""Where Prefect finds its settings: the environment, files of the working directory, a profile.

Files of the user may name a server or a program. Files in a store may not: they come from others.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError

__all__ = ["has_server", "refuse_settings"]

# Prefect's home was in the store in version 0.1; the files in it that are interpreted.
_OLD_HOME = Path(".vinedresser", "prefect")
_INTERPRETED = ("logging.yml", "profiles.toml")
_DOTENV, _PREFECT, _PYPROJECT = ".env", "prefect.toml", "pyproject.toml"


def has_server() -> bool:
    """Return whether the user has configured a Prefect server."""
    if "PREFECT_API_URL" in os.environ:
        return True
    here = Path()
    if re.search(r"(?im)^\s*(export\s+)?PREFECT_API_URL\s*=", _text(here / _DOTENV)):
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    profiles = home / "profiles.toml"
    active = os.environ.get("PREFECT_PROFILE", _table(profiles).get("active"))
    return (
        "url" in _table(here / _PREFECT, "api")
        or "url" in _table(here / _PYPROJECT, "tool", "prefect", "api")
        or "PREFECT_API_URL" in _table(profiles, "profiles", str(active))
    )


def refuse_settings(store: Path) -> None:
    """Refuse settings of Prefect in a store, which would redirect a flow or run a program.

    Args:
        store: the store, or the folder of its state on this machine.

    Raises:
        ConfigError: there is a file that Prefect interprets where version 0.1 had it do so, or the
            working directory is in the store and has settings for Prefect.
    """
    for name in _INTERPRETED:
        if os.path.lexists(store / _OLD_HOME / name):
            raise ConfigError(
                f"{store / _OLD_HOME / name}: Prefect is not configured by files in a store any "
                f"more; delete it, or if it is yours, move it to ~/.prefect/{name}"
            )
    here = Path.cwd()
    if not here.is_relative_to(store.resolve()):
        return
    found = {
        _PREFECT: (here / _PREFECT).exists(),
        _PYPROJECT: bool(_table(here / _PYPROJECT, "tool", "prefect")),
        _DOTENV: "PREFECT_" in _text(here / _DOTENV).upper(),
    }
    for name, configures in found.items():
        if configures:
            raise ConfigError(
                f"{here / name}: configures Prefect from within the store {store}; change to "
                "another working directory, or delete it"
            )


def _table(file: Path, *keys: str) -> dict[str, Any]:
    """Return a table of a TOML file; an empty one if it or the file is missing or invalid."""
    try:
        table: Any = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        # Prefect itself reports a broken file.
        return {}
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _text(file: Path) -> str:
    """Return the content of a file; "" if there is none."""
    # Reading a FIFO would block.
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
