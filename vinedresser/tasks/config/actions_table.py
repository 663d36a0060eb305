"""The table ``[actions]`` of a file of settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.masking import masked_arguments
from vinedresser.rules.actions.plan import ActionPlan


def checked_actions(
    table: object, rules: Mapping[str, Mapping[str, Any]], cwd: Path, path: Path
) -> dict[str, Any]:
    """Return the table of actions with absolute paths.

    Args:
        table: ``[actions]`` of the file.
        rules: tables of the rules by name.
        cwd: folder to which the working directory of a command is relative.

    Raises:
        ConfigError: the table is invalid; the message names the key.
    """
    where = f"{path}: actions"
    ActionPlan.from_tables(table, rules, where=where, where_rules=f"{path}: rules")
    assert isinstance(table, Mapping)
    actions = dict(table)
    if "command" in actions:
        command = dict(actions["command"])
        command["cwd"] = str(cwd / command.get("cwd", "."))
        try:
            if masked_arguments(command["argv"]) != command["argv"]:
                raise ConfigError(
                    f"{where}.command: contains what looks like a secret, which would be stored "
                    "with the run; have the command read it from its environment"
                )
            check_command(command["argv"], Path(command["cwd"]), {})
        except LaunchError as error:
            raise ConfigError(f"{where}.command: {error}") from error
        actions["command"] = command
    return actions
