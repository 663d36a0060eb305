"""The ranks of a run that a query is put to."""

from __future__ import annotations

from vinedresser.errors import ConfigError
from vinedresser.store.reading.reader import Run


def check_rank(run: Run, rank: int) -> None:
    """Check that a run has a rank.

    Raises:
        ConfigError: it does not; the message names those that it has.
    """
    world = run.info.world_size
    if rank not in range(world):
        known = "only rank 0" if world == 1 else f"the ranks 0 to {world - 1}"
        raise ConfigError(f"rank {rank}: {run.path} has {known}")
