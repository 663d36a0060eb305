"""Turn a directory into a run that can be started."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from vinedresser.errors import AlreadyARun, KeyTaken, StoreError
from vinedresser.infra.supervise.launch_values import hold
from vinedresser.infra.supervise.launcher.source_code import source_code
from vinedresser.objects import LocalStorage
from vinedresser.store.records import CHANGES_KEY, LaunchRecord, RunRecord, write_record


def prepare_run(
    directory: str | os.PathLike[str], run: RunRecord, launch: LaunchRecord
) -> RunRecord:
    """Turn a directory into a run that can be started.

    Args:
        directory: the run directory; created if missing, other files in it stay.
        run: description of the run; its command, source code and ranks are filled in.
        launch: the command to start, and how; a relative ``cwd`` is made absolute, and the
            invocation is filled in.

    Returns:
        The record in run.json.

    Raises:
        AlreadyARun: the directory already holds a run.
        StoreError: the directory cannot be written.
    """
    storage = LocalStorage(directory)
    launch = replace(launch, cwd=os.path.abspath(launch.cwd), invocation=_invocation())
    code = source_code(launch.cwd)
    run = replace(
        run,
        command=list(launch.argv),
        code=code.revision,
        branch=code.branch,
        repository=code.repository,
        world_size=launch.ranks,
    )
    try:
        write_record(storage, run, exclusive=True)
    except KeyTaken as error:
        raise AlreadyARun(
            f"{storage.location}: already holds a run, and runs are never overwritten; choose "
            "another name"
        ) from error
    try:
        write_record(storage, launch)
        if code.changes:
            storage.put(CHANGES_KEY, [code.changes.encode()])
    except StoreError:
        storage.delete(RunRecord.KEY)
        raise
    hold(directory, launch)
    return run


def _invocation() -> list[str]:
    """Return this process's command if it is `vinedresser`."""
    name = os.path.basename(sys.argv[0])
    return [name, *sys.argv[1:]] if name == "vinedresser" else []
