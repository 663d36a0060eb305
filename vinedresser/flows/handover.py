"""Hand settings that a command has read to a flow, which then does not read the file again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect import Flow

P = ParamSpec("P")
R = TypeVar("R")


def with_settings(flow: Flow[P, R], work: Callable[[], Any]) -> Flow[P, R]:
    """Return a flow that does its work with settings that have been read.

    What a command has printed of a file is then what runs, even if the file has changed meanwhile.
    The parameters remain those of the flow: Prefect keeps them as JSON on its server, from which a
    worker reads the file. The settings are none of them, since they may contain secrets.

    Args:
        flow: reads a file by its parameters, and does the work.
    """

    @wraps(flow.fn)
    def handed(*_parameters: P.args, **_more: P.kwargs) -> Any:
        return work()

    return Flow(
        handed,
        name=flow.name,
        # Otherwise a hash of this file.
        version=flow.version,
        flow_run_name=flow.flow_run_name,
        # They were used to read the file, and only describe the flow run.
        validate_parameters=False,
    )
