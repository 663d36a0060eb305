"""Fair timing on a busy machine, and tables of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

__all__ = ["interleave", "medians", "table"]


def interleave(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run every arm once per round, so that drift and other load affect all arms equally.

    The order rotates from round to round, so that no arm always follows the same one. One initial
    round is discarded.

    Args:
        arms: functions that do their work once and return a measurement, such as seconds.
        rounds: number of measurements to keep per arm.

    Returns:
        Measurements of each arm, in the order of the rounds.
    """
    results: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for turn in range(rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            measured = arms[name]()
            if turn:
                results[name].append(measured)
    return results


def medians(results: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each arm."""
    return {name: median(values) for name, values in results.items()}


def table(rows: Sequence[Sequence[object]], headers: Sequence[str]) -> str:
    """Format rows under headers: text left-aligned, numbers right-aligned, nothing truncated."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(line[column]) for line in [list(headers), *cells]) for column in range(len(headers))
    ]
    rightward = [
        all(_figure(row[column]) for row in cells if row[column]) for column in range(len(headers))
    ]

    def line(values: Sequence[str]) -> str:
        return "  ".join(
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, rightward, strict=True)
        ).rstrip()

    return "\n".join([line(headers), line(["-" * width for width in widths]), *map(line, cells)])


def _figure(cell: str) -> bool:
    """Return whether a cell is a number, possibly with a sign before it or a unit after it."""
    return cell.lstrip("<>=≤≥ +-")[:1].isdigit()
