"""A display in a notebook that follows a run."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress

from vinedresser.errors import ConfigError, MissingDependency, VinedresserError
from vinedresser.explain.charts.lines import legend_of
from vinedresser.explain.charts.plot import panel_of
from vinedresser.explain.charts.standalone import standalone
from vinedresser.explain.charts.svg import element
from vinedresser.explain.plotting import plot
from vinedresser.explain.verdicts import verdict
from vinedresser.explain.watching.answer_pictures import answer_picture
from vinedresser.queries.followed import FollowedQuery
from vinedresser.queries.query import Query
from vinedresser.store.reading.awaiting import await_run
from vinedresser.store.reading.reader import Run, open_run

# Seconds: a day.
_LONGEST = 86_400.0


def live(
    run: str | os.PathLike[str] | Run,
    *queries: str,
    every: float = 2.0,
    start_timeout: float = 60.0,
) -> None:
    """Show a run in a notebook while it trains in another process, until it ends.

    The display has the state, the losses, the findings and the answers to queries. Interrupting the
    cell pauses the display, which keeps its last state, not the training; executing it again
    resumes.

    Args:
        run: an opened run, its directory or its ``s3://`` URL; it may begin later.
        queries: such as ``"norm(gradients) by layer"``; the training answers them if it lets itself
            be asked, otherwise what it has stored does.
        every: seconds between two updates.
        start_timeout: seconds to wait for the run to begin.

    Raises:
        MissingDependency: IPython is not installed.
        ConfigError: this is not a notebook, a text is not a query, or a number of seconds is
            negative, infinite or NaN.
        NotARun: the run has not begun in time, or was removed.
        StoreError: the storage refused.
    """
    for name, seconds in (("every", every), ("start_timeout", start_timeout)):
        if not 0 <= seconds <= _LONGEST:
            raise ConfigError(f"{name} = {seconds:g}: must be 0 to {_LONGEST:,.0f} seconds")
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError as error:
        raise MissingDependency(
            "live needs IPython, which every notebook has; in a terminal, use "
            "`vinedresser show RUN`: pip install ipython"
        ) from error
    if get_ipython() is None:
        raise ConfigError("live works in a notebook; in a terminal, use `vinedresser show RUN`")
    parsed = [Query.parse(text) for text in queries]
    try:
        opened = run if isinstance(run, Run) else await_run(run, start_timeout)
        asked = [FollowedQuery(open_run(opened.path), query) for query in parsed]
        view = _LiveView(opened, asked)
        handle = display(view, display_id=True)
        while not (view.over and all(one.over for one in asked)):
            time.sleep(every)
            opened.refresh()
            view = _LiveView(opened, asked)
            handle.update(view)
    except KeyboardInterrupt:
        # The notebook's stop button: the display keeps its last state.
        return


class _LiveView:
    """The state of a run at one moment, as a notebook shows it.

    Attributes:
        over: whether the run had ended.
    """

    def __init__(self, run: Run, asked: Sequence[FollowedQuery]) -> None:
        self.over = run.finished
        if self.over:
            # Steps that were committed after the last refresh and before the end.
            run.refresh()
        self._text, self._html = repr(run), verdict(run)._repr_html_() + run._repr_html_()
        # There may be no loss so far.
        with suppress(ConfigError):
            self._html += _image(plot(run, "losses")._repr_svg_())
        self._html += "".join(_answers(one) for one in asked)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def _answers(asked: FollowedQuery) -> str:
    """Return the answers to a query so far as HTML, or why there are none."""
    query = asked.query.text
    try:
        answers = asked.look()
        if not answers:
            return element("p", f"{query}: no answer yet")
        picture = answer_picture(answers)
    except VinedresserError as error:
        return element("p", f"{query}: {error}")
    title = f"{query} \N{MIDDLE DOT} {picture.note}"
    if picture.text:
        return element("p", f"{title}: {picture.text}")
    if picture.form in ("image", "samples"):
        return element("p", title) + picture.charts[0][1]
    legend = legend_of({label: colour for colour, label in picture.legend})
    return _image(standalone(title, legend, [panel_of(*chart) for chart in picture.charts]))


def _image(svg: str) -> str:
    """Return a picture as an image, so that its styles stay in it."""
    data = b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" style="max-width: 100%">'
