"""The guard and the snapshots of an experiment file: ``[capture] guard`` and ``[snapshots]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.infra.configuration import build
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.base import Rule
from vinedresser.snapshots.settings import SnapshotSettings, check_guard

__all__ = ["guard_and_snapshots", "stopping"]


def guard_and_snapshots(
    document: Mapping[str, Any], path: Path
) -> tuple[str | None, SnapshotSettings]:
    """Return the settings of guard and snapshots.

    Args:
        document: contents of the file, whose ``[capture]`` is a table.
        path: the file, for messages.

    Returns:
        The guard, "nonfinite" by default if there is a table of snapshots, else None, the hook's
        default; and the settings of the snapshots.

    Raises:
        ConfigError: a setting is invalid.
    """
    default = "nonfinite" if "snapshots" in document else None
    guard = document.get("capture", {}).get("guard", default)
    settings = build(SnapshotSettings, document.get("snapshots", {}), f"{path}: snapshots")
    return None if guard is None else check_guard(guard, f"{path}: capture.guard"), settings


def stopping(
    settings: SnapshotSettings, rules: Iterable[Rule], plan: ActionPlan | None = None
) -> SnapshotSettings:
    """Return settings that stop a run before the update that the rule `nonfinite` would stop later.

    Args:
        rules: rules of the run.
        plan: actions that follow their findings; None: the default.
    """
    actions = plan or ActionPlan()
    stops = any(
        rule.name == "nonfinite"
        and rule.severity == "stop"
        and "stop" in actions.by_rule.get(rule.name, actions.by_severity["stop"])
        for rule in rules
    )
    return replace(settings, stop=settings.stop or stops)
