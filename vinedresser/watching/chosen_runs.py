"""A comparison of the runs that were chosen in the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vinedresser.errors import ConfigError, CorruptData, NotARun, UnknownRun
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.comparing import Comparison, comparison_of
from vinedresser.explain.reports.comparison.tables import part_words
from vinedresser.explain.verdicts import verdict
from vinedresser.plain_text import visible
from vinedresser.store.reading.run_store import RunStore

__all__ = ["compare_chosen", "differences"]


def compare_chosen(store: RunStore, names: Sequence[str], metric: str) -> Comparison:
    """Compare runs of a store.

    Args:
        names: names of the runs, as the store lists them.
        metric: the scalar by which they are ranked; "": see `choose_goal`.

    Raises:
        ConfigError: fewer than two of them can be read, or the direction of the metric is unknown.
        StoreError: the storage refused.
    """
    found, problems = [], []
    for name in names:
        try:
            run = store[name]
            found.append(ComparedRun(name, run, verdict(run)))
        except (CorruptData, NotARun, UnknownRun) as error:
            problems.append(str(error))
    if len(found) < 2:
        raise ConfigError("a comparison needs two runs or more that can be read: choose others")
    return comparison_of(found, problems, metric=metric or None)


def differences(comparison: Comparison) -> dict[str, Any]:
    """Return which run is best, and when the others part from it, as plain JSON.

    Returns:
        ``winner`` (a sentence), ``problems`` (a sentence each), ``partings`` (a list of texts for
        each run that is drawn but the best: the runs, bit for bit, beyond noise) and ``drawn``
        (number of runs that these are about).
    """
    drawn = comparison.drawn
    rows = [part_words(drawn[0], *entry) for entry in comparison.partings]
    return {
        "winner": visible(comparison.winner),
        "problems": [visible(problem) for problem in comparison.problems],
        "partings": [[visible(text) for text in row] for row in rows],
        "drawn": len(drawn),
    }
