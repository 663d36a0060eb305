"""What reading costs, by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vinedresser.objects.hedging import hedge


@dataclass
class Statistics:
    """Work of a data set in this process since it was created.

    The times are those of the thread that iterates; they add up to the time of the iteration. With
    the workers of a `TorchLoader`, the first three stages are those of all workers together.

    Attributes:
        batches: number of batches delivered.
        records: number of records delivered.
        bytes: number of bytes read.
        waiting: seconds in which it waited for bytes from the disk or the network.
        parsing: seconds of verifying checksums, decompressing and dividing into records.
        decoding: seconds in ``decode`` and ``collate``.
        queued: seconds in which the caller waited for a batch of the workers of a `TorchLoader`.
        consuming: seconds in which the caller worked on its batches.
        second_requests: number of slow requests to S3 that were sent a second time, for all data
            sets of this process.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    waiting: float = 0.0
    parsing: float = 0.0
    decoding: float = 0.0
    queued: float = 0.0
    consuming: float = 0.0
    _earlier: int = field(default_factory=lambda: hedge().repeated, repr=False)

    @property
    def second_requests(self) -> int:  # noqa: D102 (see the class)
        return hedge().repeated - self._earlier

    @property
    def stages(self) -> tuple[float, float, float, float]:
        """Seconds of waiting, parsing, decoding and queueing."""
        return self.waiting, self.parsing, self.decoding, self.queued

    def add_stages(self, waiting: float, parsing: float, decoding: float) -> None:
        """Add the work of a worker on a batch, in seconds."""
        self.waiting += waiting
        self.parsing += parsing
        self.decoding += decoding

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the duration of a block to a stage, the name of an attribute."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, stage, getattr(self, stage) + time.perf_counter() - begun)
