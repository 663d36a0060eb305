"""Start-up time: `python -m benchmarks.imports`.

Each measurement is the wall time of a fresh interpreter from start to exit. The third column
subtracts the time of a bare interpreter.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.measure import interleave, medians, table

__all__ = ["main"]

_BARE = "a bare interpreter"
_HELP = "import sys; sys.argv = ['vinedresser', '--help']; from vinedresser.cli import main; main()"
# Code to run, and its budget in seconds.
_ARMS: dict[str, tuple[str, float | None]] = {
    _BARE: ("", None),
    "import numpy": ("import numpy", None),
    "import vinedresser.capture": ("import vinedresser.capture", 0.15),
    "vinedresser --help": (_HELP, 0.3),
}


def main(rounds: int = 15) -> None:
    """Measure and print.

    Args:
        rounds: number of measurements per arm; the median is printed.
    """
    arms = {name: _timed(code) for name, (code, _) in _ARMS.items()}
    results = medians(interleave(arms, rounds))
    rows = [
        (
            name,
            f"{seconds:.3f} s",
            f"{seconds - results[_BARE]:.3f} s",
            "" if (budget := _ARMS[name][1]) is None else f"<= {budget} s",
        )
        for name, seconds in results.items()
    ]
    print(table(rows, ("start", "total", "without interpreter", "budget")))


def _timed(code: str) -> Callable[[], float]:
    """Return a function that runs code in a fresh interpreter and returns its seconds."""

    def arm() -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun

    return arm


if __name__ == "__main__":
    main()
