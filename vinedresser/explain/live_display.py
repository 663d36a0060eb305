"""A display in a notebook that follows a run."""

from __future__ import annotations

import os
import time
from base64 import b64encode

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.explain.plotting import plot
from vinedresser.store.reading.awaiting import await_run
from vinedresser.store.reading.reader import Run

__all__ = ["live"]


def live(
    run: str | os.PathLike[str] | Run, *, every: float = 2.0, start_timeout: float = 60.0
) -> None:
    """Show a run in a notebook while it trains in another process, until it ends.

    The display has the state, the losses and the findings. Interrupting the cell ends the display,
    not the training.

    Args:
        run: an opened run, its directory or its ``s3://`` URL; it may begin later.
        every: seconds between two updates.
        start_timeout: seconds to wait for the run to begin.

    Raises:
        MissingDependency: IPython is not installed.
        ConfigError: this is not a notebook.
        NotARun: the run has not begun in time, or was removed.
        StoreError: the storage refused.
    """
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
    try:
        opened = run if isinstance(run, Run) else await_run(run, start_timeout)
        view = _LiveView(opened)
        handle = display(view, display_id=True)
        while not view.over:
            time.sleep(every)
            opened.refresh()
            view = _LiveView(opened)
            handle.update(view)
    except KeyboardInterrupt:
        # The notebook's stop button: the display keeps its last state.
        return


class _LiveView:
    """The state of a run at one moment, as a notebook shows it.

    Args:
        run: the run, refreshed.

    Attributes:
        over: whether the run had ended.
    """

    def __init__(self, run: Run) -> None:
        self.over = run.finished
        if self.over:
            # Steps that were committed after the last refresh and before the end.
            run.refresh()
        self._text, self._html = repr(run), run._repr_html_()
        try:
            svg = plot(run, "losses")._repr_svg_()
        except ConfigError:
            # No loss so far.
            return
        # As an image, so that its styles stay in it.
        data = b64encode(svg.encode()).decode()
        self._html += f'<img src="data:image/svg+xml;base64,{data}" style="max-width: 100%">'

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html
