"""Pages from templates: self-contained HTML files, in which everything from runs is escaped."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["rendered", "whole_page", "write_page"]


def write_page(destination: str | os.PathLike[str], template: str, /, **contents: object) -> Path:
    """Write a page: one self-contained HTML file with a light and a dark theme.

    Args:
        destination: file to write; replaced atomically, its directory is created.
        template: name of the template.
        contents: its variables, besides the version and the time.

    Raises:
        StoreError: the file cannot be written.
    """
    path = Path(destination)
    LocalStorage(path.parent).put(path.name, [whole_page(template, **contents).encode()])
    return path


def whole_page(template: str, /, **contents: object) -> str:
    """Return the text of a page, with the version and the time in its footer.

    Args:
        template: name of the template.
        contents: its other variables.
    """
    written = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return rendered(template, **contents, version=__version__, written=written)


def rendered(template: str, /, **contents: object) -> str:
    """Return the text of a template.

    Args:
        template: name of the template.
        contents: its variables.
    """
    return _templates().get_template(template).render(**contents)


def _plain(value: object) -> object:
    """Make the control characters of text visible; lone surrogates could not even be encoded."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, keep="\n\t")
    return value


@cache
def _templates() -> Environment:
    """Return the template environment, which escapes everything except `Svg`.

    It is cached with the compiled templates: compiling takes longer than rendering a small page.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("vinedresser.explain.reports"),
                PackageLoader("vinedresser.explain.charts", "."),
            ]
        ),
        # Names and messages come from runs, which are not trusted.
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
