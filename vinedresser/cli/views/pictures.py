"""Pages about a run as a whole: its attention."""

from __future__ import annotations

from pathlib import Path, PurePath

from vinedresser.cli.views.console import console
from vinedresser.cli.views.show import mode_of
from vinedresser.errors import ConfigError
from vinedresser.store.reading.reader import Run

__all__ = ["draw_attention"]


def draw_attention(
    run: Run,
    name: str | None,
    target: Path | None,
    *,
    step: int | None,
    mode: str,
    rank: int,
    example: int,
    tokens: Path | None,
) -> None:
    """Write the page of a run's attention, and print its path.

    Args:
        run: the run.
        name: name of one tensor; None: the ``attention`` collection.
        target: the .html file; None: NAME-attention.html in the working directory.
        step: the step; None: the last one with attention.
        mode: "train", "eval" or "predict".
        rank: rank of a distributed run.
        example: number of the example.
        tokens: file with a token per line; None: the captured token ids.

    Raises:
        ConfigError: no such mode, example or file, the tokens do not fit, or the page cannot be
            written there.
        UnknownTensor: no such tensor, or no attention was captured.
        UnknownStep: not captured in full at this step.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the file cannot be written.
    """
    from vinedresser.explain.attention import read_attention, write_attention

    place = _page(run, target, "attention")
    found = read_attention(run, name, step=step, mode=mode_of(mode), rank=rank)
    words = None if tokens is None else _lines(tokens)
    written = write_attention(found, place, tokens=words, example=example)
    console.print(f"{written}   attention of {found.origin}", soft_wrap=True)


def _page(run: Run, target: Path | None, subject: str) -> Path:
    """Return the page to write.

    Raises:
        ConfigError: the file is not an HTML file.
    """
    if target is None:
        # The last part of the location: the name in the run's record could be any path.
        return Path(f"{PurePath(run.path).name}-{subject}.html")
    if target.suffix.lower() != ".html":
        raise ConfigError(f"--draw {target}: the {subject} is a page; use .html")
    return target


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file.

    Raises:
        ConfigError: it cannot be read as text.
    """
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--tokens {path}: cannot be read: {error}") from error
