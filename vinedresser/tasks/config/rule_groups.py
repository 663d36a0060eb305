"""Split `[rules]` into one table per rule group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.rules.custom_rules import absolute_reference
from vinedresser.rules.presets import preset_table

__all__ = ["grouped"]


def grouped(table: object, *, where: str, base: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rules of each group with their settings.

    A process judges each group; rules are in the group "default" unless they name another, so that
    one pass over the data serves them all.

    Args:
        table: ``[rules]`` of the file: ``preset``, and per rule a table that overrides the preset's
            or ``false`` to omit it.
        where: beginning of messages.
        base: directory to which the paths of custom rules are relative; they become absolute.

    Raises:
        ConfigError: the table is invalid; the message names the key.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    settings = dict(table)
    chosen = preset_table(settings.pop("preset", "default"), where=f"{where}.preset")
    for name, entry in settings.items():
        if entry is False:
            chosen.pop(name, None)
        elif isinstance(entry, Mapping):
            full = absolute_reference(name, base)
            chosen[full] = {**chosen.get(full, {}), **entry}
        else:
            raise ConfigError(f"{where}.{name}: must be a table or false, not {entry!r}")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in chosen.items():
        group = entry.pop("group", "default")
        if not isinstance(group, str) or not group.isidentifier():
            raise ConfigError(f"{where}.{name}.group: must be a plain word, not {group!r}")
        groups.setdefault(group, {})[name] = entry
    return groups
