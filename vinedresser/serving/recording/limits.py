"""Limits on what recording may cost, keep and write."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vinedresser.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Limits of a `RequestRecorder`.

    Attributes:
        rate: maximum number of recorded requests per second and process.
        cost: maximum share of the time of one processor core per process, from 0 to 1.
        store_bytes: bytes that the service may occupy in the store, with all its processes.
        store_seconds: age at which recorded requests are removed.
        queue_bytes: bytes of copied inputs and outputs that wait to be described; more are dropped.
        input_bytes: bytes of inputs of the last requests that each process keeps in memory for an
            alert, and that it writes for one alert.
        flush_seconds: time between two writes; None: 5 in a directory, 10 on an object store.

    Raises:
        ConfigError: a value is not a positive number, or the cost is above 1.
    """

    rate: float = 200.0
    cost: float = 0.001
    store_bytes: int = 1 << 30
    store_seconds: float = 30 * 86400.0
    queue_bytes: int = 64 << 20
    input_bytes: int = 128 << 20
    flush_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in vars(self).items():
            if name == "flush_seconds" and value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value <= 0:
                raise ConfigError(f"limits.{name}: {value!r} is not a positive number")
        if self.cost > 1:
            raise ConfigError(f"limits.cost: {self.cost!r} is not a share from 0 to 1")
