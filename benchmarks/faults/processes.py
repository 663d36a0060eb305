"""Work in processes that have imported torch already."""

from __future__ import annotations

import logging
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import TypeVar

__all__ = ["in_processes"]

J = TypeVar("J")
R = TypeVar("R")


def in_processes(
    function: Callable[[J], R],
    jobs: Sequence[J],
    count: int,
    *,
    preload: Sequence[str],
    fresh: bool = True,
) -> Iterator[tuple[J, Future[R]]]:
    """Yield each job with its result, as it completes.

    Each process computes on one thread.

    Args:
        function: what to do with a job.
        jobs: the jobs, in the order in which they begin.
        count: number of concurrent processes.
        preload: modules that are imported before the processes are forked.
        fresh: whether each job gets a process of its own.
    """
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    pool = ProcessPoolExecutor(
        count,
        mp_context=context,
        initializer=_be_quiet,
        max_tasks_per_child=1 if fresh else None,
    )
    with pool:
        futures = {pool.submit(function, job): job for job in jobs}
        for done in as_completed(futures):
            yield futures[done], done


def _be_quiet() -> None:
    """Suppress warnings of torch and the hook: the trainings are faulty on purpose."""
    warnings.simplefilter("ignore")
    logging.getLogger("vinedresser").setLevel(logging.ERROR)
