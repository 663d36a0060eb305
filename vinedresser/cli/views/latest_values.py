"""The latest loss and metric of a run that trains, its pace and the time left."""

from __future__ import annotations

import time

from vinedresser.errors import CorruptData
from vinedresser.explain.formatting import duration
from vinedresser.plain_text import visible
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["LatestValues", "fitting"]


class LatestValues:
    """The latest values of a run.

    Args:
        run: the run; it is refreshed.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._loss = self._metric = ""
        self._begun: tuple[float, int] | None = None

    def parts(self, done: int, total: int | None) -> list[str]:
        """Return what to show, the most important first: loss, time left, metric, pace.

        Args:
            done: number of optimizer steps done.
            total: number of optimizer steps in the whole run, None if unknown.
        """
        self._run.refresh()
        self._loss = self._last("losses", "train") or self._loss
        self._metric = (
            self._last("metrics", "eval") or self._last("metrics", "train") or self._metric
        )
        now = time.monotonic()
        if self._begun is None and done:
            self._begun = now, done
        pace = left = ""
        if self._begun is not None and done > self._begun[1]:
            rate = (done - self._begun[1]) / (now - self._begun[0])
            pace = f"{rate:.3g} steps/s"
            if total is not None and total > done:
                left = f"{duration((total - done) / rate)} left"
        return [part for part in (self._loss, left, self._metric, pace) if part]

    def _last(self, collection: str, mode: Mode) -> str:
        """Return the first scalar of a collection in the last step of a mode; "" without one."""
        steps = self._run.steps(mode)
        if not len(steps):
            return ""
        try:
            values = self._run.at(int(steps[-1]), mode)[-1].scalars_of(collection)
        except CorruptData:
            # The result of the run names the damage.
            return ""
        for name, value in values.items():
            word = "loss" if collection == "losses" else visible(name.rpartition("/")[2])
            return f"{word} {value:.4g}"
        return ""


def fitting(parts: list[str], room: int) -> str:
    """Return the first parts that fit into a number of characters."""
    text = ""
    for part in parts:
        longer = f"{text}   {part}".lstrip()
        if len(longer) > room:
            break
        text = longer
    return text
