"""What is said of a script that trained nothing that could be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_nothing_seen"]

_NOTHING_SEEN = (
    "no training was seen, so nothing was captured: no Python that was started made "
    "a step of a torch optimizer, of Keras or of XGBoost (one that is started with -I, -E or -S, "
    "or without this environment, cannot be seen); else put a Hook into the script"
)


def print_nothing_seen(to: Console, run: str = "") -> None:
    """Say that no training was seen.

    Args:
        to: where.
        run: its name, where there are several.
    """
    of = f"{run}: " if run else ""
    to.print(f"vinedresser: {of}{_NOTHING_SEEN}", soft_wrap=True, markup=False)
