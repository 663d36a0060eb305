"""What Prefect's pages show of a run: log lines, the name of its state, and an artifact."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from httpx import HTTPError
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.settings import get_current_settings
from prefect.states import Completed

from vinedresser.errors import VinedresserError
from vinedresser.explain.verdicts import verdict
from vinedresser.infra.services.servers import is_private, mlflow_page
from vinedresser.infra.services.tracking.runs import text
from vinedresser.masking import masked_text
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import TrackingRecord
from vinedresser.store.status import Status
from vinedresser.tasks.lifecycle.end_tags import description, literal
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["leave_artifact", "leave_run_artifact", "links", "state_of_place", "state_of_runs"]

_NAMELESS = "run"


def state_of_place(place: RunPlace) -> State[Any]:
    """Return the final state of the task that trained a run, and log how the run ended.

    A training that a rule stopped is completed, but its state has a name that says so.

    Args:
        place: place of the run, whose training has ended.
    """
    logger = get_run_logger()
    try:
        run = open_run(place.location if place.elsewhere else place.directory)
        judged = verdict(run)
    except VinedresserError as error:
        # The tasks that follow report what is wrong with the run.
        logger.warning("the end of the run cannot be read: %s", error)
        return Completed()
    # Its judges may still be at work: what they have not found yet is not told.
    words = judged.words if judged.findings else judged.status.words
    logger.info("%s: %s", place.name, words)
    return _completed([judged.status], f"{place.name}: {words}")


def state_of_runs(statuses: Iterable[Status], result: object) -> State[Any]:
    """Return the final state of a flow that trained runs, with their result.

    Args:
        result: what the flow returns.
    """
    return _completed([*statuses], None, result)


def _completed(statuses: list[Status], message: str | None, result: object = None) -> State[Any]:
    others = [status for status in statuses if status.state != "finished"]
    if not others:
        return Completed(data=result)
    words = others[0].ending
    name = words.capitalize() if others[0].state == "stopped" else f"Training {words}"
    if len(statuses) > 1:
        name = f"{len(others)} of {len(statuses)} runs did not finish"
    return Completed(name=name, message=message, data=result)


def leave_run_artifact(place: RunPlace) -> None:
    """Leave an artifact about a run that is settled: verdict, findings with remedies, and links.

    Raises:
        StoreError: the store refused a request.
        CorruptData: the record of the run is damaged.
    """
    if _keeps_nothing():
        return
    run = open_run(place.location)
    tracking = read_record_or_none(run.storage, TrackingRecord, TrackingRecord.KEY, [])
    words, _, found = description(verdict(run), None).partition("\n\n")
    # A long text is cut: findings come last.
    where = links({"report": f"{place.location}/report.html"}, tracking)
    body = f"# {literal(place.name)}\n\n{words}\n\n{where}\n\n{found}"
    # Every sweep has a trial-0000.
    outer = place.location.parent.name if tracking is not None and tracking.parent else ""
    leave_artifact(f"{outer} {place.name}", body, f"Verdict of {place.name}")


def links(pages: Mapping[str, str], tracking: TrackingRecord | None) -> str:
    """Return a list in Markdown of files and of the MLflow run.

    Args:
        pages: path or URL of each file, by what it is. A browser does not follow links to files.
        tracking: the MLflow run; None if there is none. A server is linked.
    """
    lines = [f"- {word}: `{place}`" for word, place in pages.items()]
    if tracking is not None and tracking.run_id:
        uri = masked_text(tracking.uri)
        if uri.startswith(("http://", "https://")):
            page = mlflow_page(uri, tracking.experiment_id, tracking.run_id)
            lines.append(f"- MLflow: [{tracking.run_id}]({page})")
        else:
            lines.append(f"- MLflow: run `{tracking.run_id}` of `{uri}`, shown by `vinedresser ui`")
    return "\n".join(lines)


def leave_artifact(name: str, body: str, title: str) -> None:
    """Leave an artifact of the current task or flow run; a server that is away gets a log line.

    Args:
        name: name of the run, from which the key of the artifact is made.
        body: the text in Markdown.
        title: a line of text for lists of artifacts.
    """
    if _keeps_nothing():
        return
    key = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or _NAMELESS
    try:
        create_markdown_artifact(text(body), key=key, description=title)
    except (HTTPError, PrefectException) as error:
        get_run_logger().warning("Prefect's server did not accept an artifact: %s", error)


def _keeps_nothing() -> bool:
    """Return whether the server ends with this process, and nobody sees its pages."""
    return is_private(get_current_settings().api.url or "")
