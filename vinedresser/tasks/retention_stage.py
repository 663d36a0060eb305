"""The Prefect task of the flow `retain`, and what Prefect's pages show of it."""

from __future__ import annotations

from collections.abc import Iterator

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from vinedresser.explain.formatting import count
from vinedresser.plain_logs import format_plainly
from vinedresser.tasks.config.retention_file import Retention
from vinedresser.tasks.lifecycle.end_tags import literal
from vinedresser.tasks.lifecycle.prefect_page import leave_artifact
from vinedresser.tasks.retention import Cleaned, clean


@task(name="retain", cache_policy=NO_CACHE)
def retain(retention: Retention, name: str) -> tuple[Cleaned, str]:
    """Remove or list runs, and leave an artifact named for the file; see `retention.clean`.

    Returns:
        What was removed or listed, and a sentence.
    """
    format_plainly("prefect")
    found = clean(retention.store, retention.policy, delete=retention.delete)
    text = found.text + (" removed" if retention.delete else " would be removed: delete = true")
    if found.failed:
        text += f"; {count(len(found.failed), 'run')} could not be read or removed"
    get_run_logger().info("%s: %s", retention.store, text)
    parts = [f"# {literal(str(retention.store))}", literal(text), "\n".join(_lines(found))]
    leave_artifact(f"retain {name}", "\n\n".join(parts), text)
    return found, text


def _lines(found: Cleaned) -> Iterator[str]:
    """Yield a line of Markdown for each run, and for each reason by which others stay."""
    for reason, number in found.spared.items():
        yield f"- {count(number, 'run')} {'stays' if number == 1 else 'stay'}: {reason}"
    for location in found.completed:
        yield f"- {literal(location.name)}: its removal, which was interrupted, is complete"
    listed = {one.location for one in found.candidates}
    for location, why in found.failed.items():
        if location not in listed:
            yield f"- {literal(location.name)}: {literal(why)}"
    for one in found.candidates:
        why = found.failed.get(one.location, "")
        said = why or (f"stays: {one.kept}" if one.kept else f"{one.bytes / 1e6:,.1f} MB")
        yield f"- {literal(one.name)} (ended {one.when}): {literal(said)}"
