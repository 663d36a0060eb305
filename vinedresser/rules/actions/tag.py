"""The action that tags a run."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.store.records import TagsRecord, read_record, tags_key, write_record


class TagAction:
    """Stores a tag, which the recorder sends to MLflow as ``vinedresser.tag.<rule>``.

    Args:
        group: name of the rule group, which has a record for its own tags.
    """

    name: ClassVar[str] = "tag"

    def __init__(self, group: str) -> None:
        self._key = tags_key(group)

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        finding = context.finding
        record = read_record(context.storage, TagsRecord, key=self._key) or TagsRecord({})
        value = f"step {finding.step}: {finding.seen}"
        tags = record.tags | {finding.rule: value}
        write_record(context.storage, replace(record, tags=tags), key=self._key)
        return ActionResult("done", f"{finding.rule}: {value}")
