"""The cheapest possible trial: a process that reports one metric value."""

from __future__ import annotations

import sys

from vinedresser.capture import Hook


def main() -> None:
    """Report ``--x X`` as the metric; ``--alone DIRECTORY`` runs without a launcher."""
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    with Hook(given.get("--alone")) as hook, hook.mode("eval"):
        hook.metric("score", float(given["--x"]))


if __name__ == "__main__":
    main()
