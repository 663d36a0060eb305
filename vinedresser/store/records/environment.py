"""Environment variables of the processes of a run."""

from __future__ import annotations

import os

__all__ = [
    "ATTACH_VARIABLE",
    "FLOW_VARIABLE",
    "RANK_VARIABLE",
    "RUN_ID_VARIABLE",
    "RUN_VARIABLE",
    "environment_without_run",
]

# Set for a launched trainer: the location of its run, the run's id (which marks all descendants),
# and, for distributed trainings, the rank.
RUN_VARIABLE = "VINEDRESSER_RUN"
RUN_ID_VARIABLE = "VINEDRESSER_RUN_ID"
RANK_VARIABLE = "VINEDRESSER_RANK"
# Set to capture a script that creates no hook.
ATTACH_VARIABLE = "VINEDRESSER_ATTACH"
# Set for helper processes of a flow: the flow's id. Supervisors and trainers do not have it.
FLOW_VARIABLE = "VINEDRESSER_FLOW"

_VARIABLES = frozenset(
    {RUN_VARIABLE, RUN_ID_VARIABLE, RANK_VARIABLE, ATTACH_VARIABLE, FLOW_VARIABLE}
)


def environment_without_run() -> dict[str, str]:
    """Return the environment without the variables above."""
    return {name: value for name, value in os.environ.items() if name not in _VARIABLES}
