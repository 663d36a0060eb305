"""What is said of the attempts in the place of stopped runs, when all are over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from vinedresser.tasks.lifecycle.run_result import RemedyResult, RunResult

__all__ = ["print_remedied"]


def print_remedied(remedied: RemedyResult, to: Console) -> None:
    """Say in one line which correction cured a run, or why it is not cured.

    Args:
        remedied: what became of it.
        to: where.
    """
    to.print(f"{remedied.first.name}: {_verdict(remedied)}", soft_wrap=True, markup=False)


def _verdict(remedied: RemedyResult) -> str:
    cure = remedied.cure
    if cure is not None:
        figures = ", ".join(_compared(cure, remedied.first))
        return f"cured by {remedied.change} ({cure.name})" + (figures and f": {figures}")
    if not remedied.attempts:
        return f"not begun again: {remedied.left}"
    return f"not cured by {remedied.change}: {remedied.left}"


def _compared(cure: RunResult, first: RunResult) -> Iterator[str]:
    """Yield the last loss and the accuracies of an attempt, against those of the first run."""
    for values, before in (
        (dict(list(cure.losses.items())[:1]), first.losses),
        (cure.metrics, first.metrics),
    ):
        for name, value in values.items():
            against = f" against {_figure(before[name])}" if name in before else ""
            yield f"{name} {_figure(value)}{against}"


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else str(value)
