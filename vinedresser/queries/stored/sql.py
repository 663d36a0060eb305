"""SQL over the streams of all runs of a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vinedresser.errors import CorruptData, MissingDependency, NotARun, QueryError
from vinedresser.queries.frames import frame_of_answers
from vinedresser.queries.stored.streams import streams
from vinedresser.store.reading.run_store import RunStore, open_store

if TYPE_CHECKING:
    import pandas as pd

# A statement reaches the two tables and nothing else: no files, no network, no extensions, no
# variables of the program; and it cannot change that.
_LOCKED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "2GB",
    "threads": "2",
    "lock_configuration": "true",
}


def sql(store: str | os.PathLike[str] | RunStore, statement: str) -> pd.DataFrame:
    """Return the result of an SQL statement over the stored streams of all runs.

    The table `answers` has a row for each number: run, stream, query, and the columns of
    `Stream.to_pandas`. The table `runs` is `RunStore.to_pandas()`. The dialect is DuckDB's.

    Args:
        store: an opened store, its directory or its ``s3://`` URL.
        statement: such as ``select run, max(value) from answers group by run``.

    Raises:
        MissingDependency: DuckDB or pandas is not installed: ``pip install 'vinedresser[sql]'``.
        QueryError: the statement is not valid or not allowed.
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """
    try:
        import duckdb
        import pandas as pd
    except ImportError as error:
        raise MissingDependency(
            "sql needs DuckDB and pandas: pip install 'vinedresser[sql]'"
        ) from error
    opened = store if isinstance(store, RunStore) else open_store(store)
    frames = [frame_of_answers([]).assign(run="", stream="", query="")]
    for name in opened:
        try:
            found: dict[str, Any] = dict(streams(opened[name]))
        except (CorruptData, NotARun):
            # Damaged, or removed meanwhile; the table of runs says so.
            continue
        for stream, answers in found.items():
            query = answers[-1].query if answers else ""
            frames.append(answers.to_pandas().assign(run=name, stream=stream, query=query))
    with duckdb.connect(":memory:", config=_LOCKED) as database:
        database.register("answers", pd.concat([frame for frame in frames if len(frame)] or frames))
        database.register("runs", opened.to_pandas())
        try:
            return database.execute(statement).df()
        except duckdb.Error as error:
            raise QueryError(f"not a valid statement: {error}") from error
