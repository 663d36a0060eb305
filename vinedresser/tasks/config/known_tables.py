"""The tables of a TOML file, and the command that files with other tables are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean

# By table the command that reads it; the first of them in a file decides.
_COMMANDS = {
    "sweep": "sweep",
    "space": "sweep",
    "prune": "prune",
    "monitor": "monitor",
    "retention": "gc",
}


def check_tables(document: Mapping[str, Any], tables: Iterable[str], path: Path) -> None:
    """Check that a file has no tables but these.

    Args:
        document: contents of the file.
        tables: names of its tables.
        path: the file, for messages.

    Raises:
        ConfigError: there is another table; the message names it, and the command for such a file.
    """
    tables = list(tables)
    other = next((_COMMANDS[one] for one in _COMMANDS if one in document), "")
    for table in document:
        if table in tables:
            continue
        if table in _COMMANDS:
            raise ConfigError(
                f"{path}: {table}: unknown table; a file with it is run by "
                f"`vinedresser {other} {path}`"
            )
        known = did_you_mean(table, tables) or f"; the tables are {', '.join(tables)}"
        raise ConfigError(f"{path}: {table}: unknown table{known}")
