"""`vinedresser logs`: the output of a training."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import RunArgument
from vinedresser.errors import ConfigError


def logs(
    run: RunArgument,
    *,
    rank: Annotated[int | None, typer.Option(min=0, help="Rank of several (default: 0).")] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Print all ranks in the order of their lines.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print what is added until the run is over.")
    ] = False,
) -> None:
    """Print the output of a training, which it wrote to its terminal."""
    from vinedresser.cli.views.log_lines import print_log
    from vinedresser.objects import open_storage
    from vinedresser.store.records import LOG_KEY, LaunchRecord, rank_log_key, read_record
    from vinedresser.store.status import run_status

    if merge and rank is not None:
        raise ConfigError("--merge: prints all ranks; remove --rank")
    storage = open_storage(run)
    # Raises an error where there is no run at all.
    run_status(storage)
    launch = read_record(storage, LaunchRecord)
    if launch is None:
        raise ConfigError(f"{run}: has no output: vinedresser did not start it")
    if rank is not None and rank >= launch.ranks:
        there = "only rank 0" if launch.ranks == 1 else f"ranks 0 to {launch.ranks - 1}"
        raise ConfigError(f"--rank {rank}: {run} has {there}")
    alone = launch.ranks > 1 and not merge
    print_log(storage, rank_log_key(rank or 0) if alone else LOG_KEY, follow=follow)
