"""Marking a run because of a finding."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.store.records import TagsRecord, read_record, tags_key, write_record

__all__ = ["TagAction"]


class TagAction:
    """Notes a tag of the run, which the recorder sends to MLflow as ``vinedresser.tag.<rule>``.

    Args:
        group: of the rules; its tags are a record of their own, so that nobody else writes it.
    """

    name: ClassVar[str] = "tag"

    def __init__(self, group: str) -> None:
        self._key = tags_key(group)

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        finding = context.finding
        record = read_record(context.storage, TagsRecord, key=self._key) or TagsRecord({})
        said = f"step {finding.step}: {finding.seen}"
        tags = record.tags | {finding.rule: said}
        write_record(context.storage, replace(record, tags=tags), key=self._key)
        return ActionResult("done", f"{finding.rule}: {said}")
