"""One run as an overview: status, findings, losses, metrics, gradients by layer, timing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from urllib.parse import quote

from vinedresser.explain.reports.page import build_page
from vinedresser.explain.reports.report import PAINTS
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.view import View
from vinedresser.store.reading.reader import Run


def run_view(run: Run, siblings: Collection[str] = ()) -> View:
    """Return the overview of a run in any state, as of its last refresh.

    Args:
        siblings: names of the runs of its store, to which the page may link.

    Raises:
        CorruptData: the exit record of the run cannot be read.
        StoreError: the storage refused.
    """
    page = build_page(run)
    head = page.head
    if replaced := head.remedy or head.restart:
        first = replaced.first
        link = f"/run/{quote(first, safe='', errors='replace')}" if first in siblings else ""
        page = replace(page, head=replace(head, first_report=link))
    html = rendered("run_sections.html.j2", page=page, **PAINTS)
    verdict = head.verdict
    title = f"{head.name} · {verdict.headline}"
    return View(
        title,
        f"{verdict.status.state} tone-{verdict.tone}",
        html,
        over=verdict.status.over,
        steps=verdict.steps,
    )
