"""Watch, judge, stop and record training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.explain.comparison.comparing import compare as compare
    from vinedresser.store.reading.reader import open_run as open_run

__all__ = ["__version__", "compare", "open_run"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy: the supervisor and `vinedresser --help` must not load numpy.
    if name == "open_run":
        from vinedresser.store.reading.reader import open_run

        return open_run
    if name == "compare":
        from vinedresser.explain.comparison.comparing import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
