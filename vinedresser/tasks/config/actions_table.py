"""The table ``[actions]`` of a file of settings."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.masking import masked_arguments
from vinedresser.rules.actions.block import block_command
from vinedresser.rules.actions.plan import ActionPlan

__all__ = ["checked_actions", "refuse_missing_block"]

# Seconds to load a block.
_PATIENCE = 60.0


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


def refuse_missing_block(actions: Mapping[str, Any], path: Path) -> None:
    """Refuse a notification block that Prefect's server does not have.

    Args:
        actions: ``[actions]`` of the file.

    Raises:
        ConfigError: there is none of this name and type, or the server does not answer.
    """
    if block := actions.get("notify", {}).get("block"):
        _load_block(block, f"{path}: actions.notify.block")


# A command asks before it starts Prefect, and its flow once more.
@cache
def _load_block(block: str, where: str) -> None:
    try:
        done = subprocess.run(
            block_command(block, "--check"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{where}: no answer of Prefect's server in {_PATIENCE:g} s") from error
    if done.returncode:
        told = done.stdout.decode(errors="replace").strip()
        raise ConfigError(f"{where}: {told or 'Prefect cannot be loaded'}")
