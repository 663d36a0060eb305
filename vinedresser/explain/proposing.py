"""Expectations that a good run suggests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.explain.comparison.compared_run import named_scalars
from vinedresser.explain.verdicts import verdict
from vinedresser.queries.language.tokens import spelled
from vinedresser.queries.naming import path_of
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.signals.outcomes.metric_scale import direction
from vinedresser.store.reading.reader import Run

# Share of the way of a metric that another good run goes, too, share of its value by which it may
# miss it, and factor of the greatest loss.
_WAY = 0.5
_NEAR = 0.1
_GREATEST = 10.0
# Fewest values that have a direction.
_FEWEST = 8
# Most frozen parameters that are named.
_FROZEN = 10


def proposed_expectations(run: Run) -> list[str]:
    """Return lines that another good run will meet, too, if it is made the same way.

    Losses that fell are to fall, and to stay below ten times their greatest value; metrics of known
    direction are to go half the way that they went, at most to a tenth from the end; frozen
    parameters are to stay frozen. What the run itself does not meet, or cannot tell, is left out.

    Args:
        run: a run that ended well.

    Raises:
        ConfigError: it did not end well.
        CorruptData: stored values are damaged.
    """
    found = verdict(run)
    if found.status.state != "finished" or found.finding is not None:
        raise ConfigError(
            f"{run.path}: is no good run: {found.words}; take one that finished without a problem"
        )
    return [line for line in _candidates(run) if _is_met(run, line)]


def _candidates(run: Run) -> Iterator[str]:
    for name, column in named_scalars(run).items():
        values = column.values[np.isfinite(column.values)]
        mode, _, short = name.partition("/")
        if not len(values) or mode == "predict":
            continue
        said = spelled(name)
        if short == "loss":
            if len(values) >= _FEWEST:
                yield f"{said} falls"
            if mode == "train" and values.max() > 0:
                yield f"{said} < {_GREATEST * float(values.max()):.2g}"
        elif mode == "eval" and (better := direction(short)) * (values[-1] - values[0]) > 0:
            half = better * float(values[0] + _WAY * (values[-1] - values[0]))
            near = better * float(values[-1]) - _NEAR * abs(float(values[-1]))
            yield f"{said} {'>' if better > 0 else '<'} {better * min(half, near):.2g} by end"
    for name in run.info.frozen[:_FROZEN]:
        yield f"{path_of(name)} frozen"


def _is_met(run: Run, line: str) -> bool:
    return not [*judge(run, rules_from_table({"expectation": {"lines": [line]}}))]
