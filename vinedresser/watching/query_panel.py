"""The panel of a query that was typed into the page of a run."""

from __future__ import annotations

import re

from vinedresser.errors import VinedresserError
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.answer_pictures import AnswerPicture, answer_picture
from vinedresser.explain.watching.view import View
from vinedresser.queries.followed import FollowedQuery
from vinedresser.queries.query import Query
from vinedresser.store.reading.reader import Run
from vinedresser.watching.feed import Feed

__all__ = ["MOST_PANELS", "QueryPanel"]

# Of one run, in all pages that show it.
MOST_PANELS = 8
_OF_A_RANK = re.compile(r"\s*rank\s+([0-9]{1,9})\s*:(.*)", re.DOTALL)


class QueryPanel:
    """A query to a run with the picture of its answers, drawn as the page asks for it.

    Args:
        run: the run, opened for this panel.
        text: the query; for another rank than 0 with its number, such as ``rank 1: mean(inputs)``.

    Attributes:
        feed: its newest view.

    Raises:
        ConfigError: the text is not a query.
    """

    def __init__(self, run: Run, text: str) -> None:
        found = _OF_A_RANK.fullmatch(text)
        rank, asked = (int(found[1]), found[2]) if found else (0, text)
        query = Query.parse(asked)
        self._followed = FollowedQuery(run, query, rank)
        self._answered: tuple[int, int, bool] | None = None
        self._view: View | None = None
        self._title = f"rank {rank}: {query.text}" if rank else query.text
        self.feed = Feed(self._draw, self._title)

    def _draw(self) -> View:
        """Return the picture of the answers so far; the last one if there are no new ones."""
        try:
            answers = self._followed.look()
            newest = answers[-1].window if answers else -1
            seen = len(answers), newest, self._followed.over
            if self._view is None or seen != self._answered:
                picture = answer_picture(answers) if answers else AnswerPicture("none", "")
                thinned = bool(answers and answers[-1].thinned)
                self._answered, self._view = seen, self._rendered(picture, thinned=thinned)
        except VinedresserError as error:
            self._view = self._rendered(AnswerPicture("none", "", text=str(error)))
        return self._view

    def _rendered(self, picture: AnswerPicture, *, thinned: bool = False) -> View:
        followed = self._followed
        live = "asked live, thinned" if thinned else "asked live"
        html = rendered(
            "answer.html.j2",
            picture=picture,
            source=live if followed.live else "from what is stored",
            over=followed.over,
        )
        return View(self._title, picture.form, html, over=followed.over)
