"""Training jobs that are watched, judged, stopped and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinedresser.store.reading.reader import open_run as open_run

__all__ = ["__version__", "open_run"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazily: the supervisor and `vinedresser --help` must not pay for numpy.
    if name == "open_run":
        from vinedresser.store.reading.reader import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
