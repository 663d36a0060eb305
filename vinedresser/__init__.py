"""Watch, judge, stop and record training jobs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vinedresser.version import __version__

if TYPE_CHECKING:
    from vinedresser.capture.hook.hook import Hook as Hook
    from vinedresser.explain.answers_plot import plot_answers as plot_answers
    from vinedresser.explain.comparison.comparing import compare as compare
    from vinedresser.explain.live_display import live as live
    from vinedresser.explain.plotting import plot as plot
    from vinedresser.explain.verdicts import verdict as verdict
    from vinedresser.queries.asking import ask as ask
    from vinedresser.queries.stored.streams import streams as streams
    from vinedresser.store.reading.reader import open_run as open_run
    from vinedresser.store.reading.run_store import open_store as open_store

__all__ = [
    "Hook",
    "__version__",
    "ask",
    "compare",
    "live",
    "open_run",
    "open_store",
    "plot",
    "plot_answers",
    "streams",
    "verdict",
]

# Read by libraries that this package imports, here or in programs that it starts, before they send
# data about their use. Values that the user has set stay.
_NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Here, since they may be imported next.
for _name, _value in _NO_TELEMETRY.items():
    os.environ[_name] = os.environ.get(_name) or _value

# The module of each name, imported on first use: the supervisor and `vinedresser --help` must not
# load numpy.
_HOMES = {
    "Hook": "capture.hook.hook",
    "ask": "queries.asking",
    "compare": "explain.comparison.comparing",
    "live": "explain.live_display",
    "open_run": "store.reading.reader",
    "open_store": "store.reading.run_store",
    "plot": "explain.plotting",
    "plot_answers": "explain.answers_plot",
    "streams": "queries.stored.streams",
    "verdict": "explain.verdicts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vinedresser.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
