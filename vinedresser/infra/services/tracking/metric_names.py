"""Metric keys in MLflow for the names of scalars in a run."""

from __future__ import annotations

import posixpath
import re

from vinedresser.plain_logs import plain_logger
from vinedresser.store.collections.collection import ACCURACY

__all__ = ["MetricNames", "clean_key"]

_LOG = plain_logger(__name__)

_LONGEST_KEY = 250
_COLLECTIONS = ("losses/", "metrics/")


class MetricNames:
    """Assigns a limited number of metric keys.

    MLflow's UI draws one chart per key and becomes slow with many; the remaining scalars are in the
    run directory and in its report. The keys depend only on the order of names. The first loss of a
    mode is ``MODE/loss`` for any class of loss, so runs with different losses share a chart; the
    first accuracy that the hook has computed is ``MODE/accuracy`` unless the script reports one.

    Args:
        most: maximum number of keys.
    """

    def __init__(self, most: int = 30) -> None:
        self._most = most
        self._keys: dict[tuple[str, str], str | None] = {}
        self._taken: set[str] = set()

    @property
    def left_out(self) -> list[str]:
        """The scalars without a key, as ``mode name``, in order of appearance."""
        return [f"{mode} {name}" for (mode, name), key in self._keys.items() if key is None]

    def key(self, name: str, mode: str) -> str | None:
        """Return the metric key of a scalar, such as ``eval/accuracy``; None if it has none.

        Args:
            name: its name in the run, such as ``metrics/accuracy``.
            mode: "train", "eval" or "predict".
        """
        if (mode, name) not in self._keys:
            self._keys[mode, name] = self._new_key(name, mode)
        return self._keys[mode, name]

    def _new_key(self, name: str, mode: str) -> str | None:
        if len(self._taken) >= self._most:
            if not self.left_out:
                _LOG.warning(
                    "only the first %d metrics are sent to MLflow, not %r and later ones; "
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
        if name.startswith(ACCURACY):
            short = "accuracy"
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
    """Return a name that MLflow accepts as the key of a metric, parameter or tag.

    Keys have at most 250 letters, digits, spaces and ``_ - . : /``, and are normalised paths.
    """
    clean = re.sub(r"[^/\w.\- :]", "_", name)[:_LONGEST_KEY]
    if not clean.strip("/ ."):
        return "_"
    # A key must be a normalised path: no "..", "//", leading or trailing "/".
    return posixpath.normpath(clean.replace("..", "__").strip("/ "))
