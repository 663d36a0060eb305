"""A comparison of runs: its table, and its page in MLflow."""

from __future__ import annotations

from pathlib import Path

from vinedresser.cli.views.column_choice import fitted_table
from vinedresser.cli.views.console import figure, line_room, print_table, relative, say
from vinedresser.errors import ConfigError
from vinedresser.explain.comparison import Comparison
from vinedresser.explain.formatting import count, plain, shortened
from vinedresser.explain.reports.comparison.tables import part_words
from vinedresser.objects import parse_location

__all__ = ["log_comparison", "print_comparison"]

# The page has all runs and settings.
_MOST_RUNS, _MOST_SETTINGS, _MOST_PARTINGS = 20, 3, 3
_LONGEST, _FOLDED = 14, 24


def print_comparison(comparison: Comparison, page: Path) -> None:
    """Print the table of runs, the best first, then the winner and where runs part."""
    goal = comparison.goal
    # A setting may have the name of another column, such as steps.
    settings = {
        f"parameters/{name}": (name, values)
        for name, values in list(comparison.settings.items())[:_MOST_SETTINGS]
    }
    metric = {} if goal is None else {"metric": goal.metric}
    rows = []
    for place, run in enumerate(comparison.runs[:_MOST_RUNS]):
        row = {"run": run.name, "verdict": run.verdict, "steps": str(run.steps)}
        for key, name in metric.items():
            row[key] = figure(run.result(name)) if name in run.results else ""
        rows.append(row | {key: _setting(values[place]) for key, (_, values) in settings.items()})
    headings = {"run": "run", **metric, "verdict": "verdict", "steps": "steps"}
    table = fitted_table(
        headings | {key: name for key, (name, _) in settings.items()},
        rows,
        room=line_room(),
        dropped=("steps", *reversed(settings), "metric"),
        folded={"run": _FOLDED, "verdict": _FOLDED},
        figures=("metric", "steps"),
    )
    print_table(table)
    more = len(comparison.runs) - _MOST_RUNS
    if more > 0:
        say(f"and {count(more, 'more run')} in the page")
    say(comparison.winner)
    for entry in comparison.partings[:_MOST_PARTINGS]:
        names, exact, noise = part_words(comparison.drawn[0], *entry)
        say(f"{names} differ   first: {exact}   beyond noise: {noise}")
    if comparison.problems:
        say(f"{count(len(comparison.problems), 'problem')} with the data, in the page", style="red")
    drawn, runs = len(comparison.drawn), len(comparison.runs)
    of = f"   curves of {drawn} of {runs} runs" if drawn < runs else ""
    say(f"{relative(page.absolute())}{of}")


def log_comparison(comparison: Comparison, page: Path) -> None:
    """Upload the page to the MLflow run that is the parent of the runs, and print its id.

    Raises:
        ConfigError: MLflow does not track the runs, or they do not have one parent there.
        UntrustedTracking: only a run's record names the tracking URI.
        CorruptData: a tracking record cannot be read.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the storage refused.
    """
    from vinedresser.infra.catalog.known_tracking import read_tracking
    from vinedresser.infra.services.tracking.artifacts import upload

    records = [read_tracking(parse_location(run.run.path)) for run in comparison.runs]
    parents = {
        (record.uri, record.parent) for record in records if record is not None and record.parent
    }
    if len(parents) != 1:
        why = "have several parents" if parents else "have no parent"
        raise ConfigError(
            f"--log: the runs {why} in MLflow; compare the trials of one sweep or the rounds of "
            "one pruning"
        )
    uri, parent = parents.pop()
    upload(uri, parent, {page.name: page})
    say(f"mlflow run {parent}   artifact {page.name}")


def _setting(value: object) -> str:
    return "" if value is None else shortened(plain(value), _LONGEST)
