"""Run several jobs at the same time, each in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from vinedresser.errors import VinedresserError

__all__ = ["side_by_side"]


def side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs at the same time and wait for all of them.

    Args:
        jobs: at least one job.

    Raises:
        VinedresserError: several jobs failed; the message joins theirs.
        Exception: the error of the only job that failed.
    """
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="job") as pool:
        futures = [pool.submit(job) for job in jobs]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if len(failures) > 1:
        messages = dict.fromkeys(str(failure) for failure in failures)
        raise VinedresserError("; ".join(messages)) from failures[0]
    if failures:
        raise failures[0]
