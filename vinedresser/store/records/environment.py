"""What a process of a run finds in its environment."""

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

# What a launched trainer finds in its environment: where its run is, which one it is (by this all
# its descendants are known), and, where somebody sets it, its rank.
RUN_VARIABLE = "VINEDRESSER_RUN"
RUN_ID_VARIABLE = "VINEDRESSER_RUN_ID"
RANK_VARIABLE = "VINEDRESSER_RANK"
# Set where what a launched Python trains is to be captured without its script's doing.
ATTACH_VARIABLE = "VINEDRESSER_ATTACH"
# What the helpers of a flow find: the flow. Supervisors and trainers do not carry it.
FLOW_VARIABLE = "VINEDRESSER_FLOW"

_VARIABLES = frozenset(
    {RUN_VARIABLE, RUN_ID_VARIABLE, RANK_VARIABLE, ATTACH_VARIABLE, FLOW_VARIABLE}
)


def environment_without_run() -> dict[str, str]:
    """Return the environment, but for what says to which run and flow this process belongs."""
    return {name: value for name, value in os.environ.items() if name not in _VARIABLES}
