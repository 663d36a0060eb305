"""From the names in a run to the few metric keys of its MLflow run."""

from __future__ import annotations

import logging
import posixpath
import re

__all__ = ["MetricNames", "clean_key"]

_LOG = logging.getLogger(__name__)

_LONGEST_KEY = 250
_COLLECTIONS = ("losses/", "metrics/")


class MetricNames:
    """Gives out metric keys, at most a fixed number of them.

    MLflow's pages draw one chart per key and become slow with many; what is left out is in the run
    directory and in its report. The keys depend only on the order in which names are met: the first
    loss of a mode is ``MODE/loss`` whatever its class, so that runs with different losses stand in
    one chart.

    Args:
        most: how many keys there may be.
    """

    def __init__(self, most: int = 30) -> None:
        self._most = most
        self._keys: dict[tuple[str, str], str | None] = {}
        self._taken: set[str] = set()

    @property
    def left_out(self) -> list[str]:
        """Which scalars got no key, as ``mode name``, in the order in which they were met."""
        return [f"{mode} {name}" for (mode, name), key in self._keys.items() if key is None]

    def key(self, name: str, mode: str) -> str | None:
        """Return the metric key of a scalar, such as ``eval/accuracy``; None when it is left out.

        Args:
            name: as in the run, such as ``metrics/accuracy``.
            mode: "train", "eval" or "predict".
        """
        if (mode, name) not in self._keys:
            self._keys[mode, name] = self._new_key(name, mode)
        return self._keys[mode, name]

    def _new_key(self, name: str, mode: str) -> str | None:
        if len(self._taken) >= self._most:
            if not self.left_out:
                _LOG.warning(
                    "MLflow gets the first %d metrics only, without %r and what follows; "
                    "all of them are in the run and its report",
                    self._most,
                    name,
                )
            return None
        short = name
        for collection in _COLLECTIONS:
            short = short.removeprefix(collection)
        if name.startswith("losses/") and f"{mode}/loss" not in self._taken:
            short = "loss"
        key = clean_key(f"{mode}/{short}")
        if key in self._taken:
            key = clean_key(f"{mode}/{name}")
        count = 2
        while key in self._taken:
            key = clean_key(f"{mode}/{name}"[: _LONGEST_KEY - 8] + f"-{count}")
            count += 1
        self._taken.add(key)
        return key


def clean_key(name: str) -> str:
    """Return a name that MLflow takes as a key of a metric, parameter or tag.

    Those are letters, digits, ``_ - . : /`` and space, at most 250, and no path tricks.
    """
    clean = re.sub(r"[^/\w.\- :]", "_", name)[:_LONGEST_KEY]
    if not clean.strip("/ ."):
        return "_"
    # As a file name it must be its own normal form: no "..", "//", leading or trailing "/".
    return posixpath.normpath(clean.replace("..", "__").strip("/ "))
