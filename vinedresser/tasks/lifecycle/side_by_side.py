"""Several things at the same time, each in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from vinedresser.errors import VinedresserError

__all__ = ["side_by_side"]


def side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """Do several things at the same time, and see all of them to their end.

    Args:
        jobs: at least one.

    Raises:
        VinedresserError: more than one failed; it says what each of them said.
        Exception: what the one raised that failed.
    """
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="beside") as pool:
        futures = [pool.submit(job) for job in jobs]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if len(failures) > 1:
        said = dict.fromkeys(str(failure) for failure in failures)
        raise VinedresserError("; ".join(said)) from failures[0]
    if failures:
        raise failures[0]
