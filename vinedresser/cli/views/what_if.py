"""View of counterfactuals: what was tried on a recorded state, and what cured it."""

from __future__ import annotations

from vinedresser.cli.views.console import console, plain_table, say
from vinedresser.replay.what_if.results import WhatIf, course_words

__all__ = ["print_what_if"]


def print_what_if(found: WhatIf) -> None:
    """Print the trials as a table, and what follows from them."""
    repeated = "the same batch each time" if found.batches == 1 else f"{found.batches} batches"
    say(f"what if: {found.steps} steps from here, {repeated}")
    say(f"  unchanged: {course_words(found.unchanged)}")
    if found.trials:
        say(f"  symptom: {found.symptom}")
        table = plain_table()
        for name in ("  change", "result", ""):
            table.add_column(name, no_wrap=True)
        for one in found.trials:
            table.add_row(f"  {one.change}", course_words(one.course), found.verdict(one))
        console.print(table)
    if found.not_tried:
        say(f"  no time to try: {'; '.join(found.not_tried)}")
    say(f"tried: {found.conclusion}")
