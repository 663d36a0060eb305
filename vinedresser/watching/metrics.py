"""The runs of a store as metrics in the text format of Prometheus.

The format is that of https://prometheus.io/docs/instrumenting/exposition_formats/, which
OpenTelemetry's collector reads, too. All are read from the store, so a restart loses none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HELP = {
    "vinedresser_store_readable": "1 if the store can be read, else 0",
    "vinedresser_runs": "Runs in the store by state",
    "vinedresser_runs_stopped": "Stopped runs by the rule that decides their verdict; empty: none",
    "vinedresser_runs_with_findings": "Runs by rule and the severity of its worst finding",
    "vinedresser_steps": "Optimizer steps of all runs in the store",
    "vinedresser_run_seconds": "Seconds of all runs that are over",
}


def metrics_text(rows: Sequence[Mapping[str, Any]], problem: str) -> str:
    """Return the metrics.

    All are gauges: they fall when runs are removed.

    Args:
        rows: rows of `StoreTable.changes`.
        problem: why the store cannot be read; "": it can be.
    """
    samples: dict[str, Counter[tuple[tuple[str, str], ...]]] = {name: Counter() for name in _HELP}
    samples["vinedresser_store_readable"][()] = int(not problem)
    # Also if there are no runs.
    samples["vinedresser_steps"][()] = samples["vinedresser_run_seconds"][()] = 0
    for row in rows:
        samples["vinedresser_runs"][(("state", row["state"]),)] += 1
        if row["state"] == "stopped":
            samples["vinedresser_runs_stopped"][(("rule", row["rule"]),)] += 1
        for one in row["findings"]:
            labels = (("rule", one["rule"]), ("severity", one["severity"]))
            samples["vinedresser_runs_with_findings"][labels] += 1
        samples["vinedresser_steps"][()] += row["steps"]
        samples["vinedresser_run_seconds"][()] += row["seconds"] or 0
    return "".join(_lines(samples))


def _lines(samples: Mapping[str, Counter[tuple[tuple[str, str], ...]]]) -> Iterator[str]:
    for name, values in samples.items():
        yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n"
        for labels, value in sorted(values.items()):
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
            yield f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
