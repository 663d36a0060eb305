"""The environment in which rules are computed: one thread."""

from __future__ import annotations

import os

__all__ = ["judge_environment", "use_one_thread"]

# The matrices of rules are small: several threads take up to a hundred times as long, since they
# wait for each other and for the cores that the trainings use.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def judge_environment() -> dict[str, str]:
    """Return the environment of a judge: that of this process, with one thread for numpy."""
    return os.environ | _ONE_THREAD


def use_one_thread() -> None:
    """Judge in this process with one thread for numpy, which must not have been imported yet."""
    os.environ.update(_ONE_THREAD)
