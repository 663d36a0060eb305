"""Trainings after well-known public scripts, alone and watched: ``python -m benchmarks.public``.

Each recipe is a plain script in our own words, run unchanged as a process: alone, and by
``vinedresser run`` with all default rules. The two alternate. Losses, evaluations and a digest of
the final weights must be equal bit for bit. The trainings are healthy: a rule should neither stop
one nor warn.

"losses" and "evals" are the shares of the printed values that were captured, "labels" is the number
of steps with captured labels. Times are per step, from the twentieth step to the end of the script:
"ms" is the CPU time alone, "added" the CPU time that the hook adds, "usual" what it adds to the
median step, in which little is due, and "wall" and "CPU" are ratios of the times with and without
the hook. All are medians over the rounds. Judging runs in another process. The budget of both
ratios is 1.05 where a step takes 20 ms, so 1 ms may be added; a step that takes much less is judged
by what is added.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.measure import table
from benchmarks.public.running import Printed, Seen, train, what_was_seen

__all__ = ["RECIPES", "measure"]

# Recipes, and the packages that they need beside torch.
RECIPES = {
    "char_gpt": "torch",
    "lstm_lm": "torch",
    "trainer": "torch",
    "cnn": "torch",
    "mixup": "torch",
    "contrastive": "torch",
    "distillation": "torch",
    "vae": "torch",
    "dcgan": "torch",
    "wgan": "torch",
    "diffusion": "torch",
    "ppo": "torch",
    "dqn": "torch",
    "lightning_fit": "lightning",
    "keras_fit": "tensorflow",
    "keras_in_torch": "keras",
    "boosting": "xgboost",
}
_HEADERS = (
    "recipe", "equal", "losses", "evals", "labels", "worst finding", "ms", "added", "usual", "wall",
    "CPU",
)  # fmt: skip


def measure(name: str, rounds: int, steps: int | None) -> list[str]:
    """Run a recipe alone and watched, and return its row of the table.

    Args:
        name: one of `RECIPES`.
        rounds: number of trainings of each kind.
        steps: number of steps; None for the recipe's default.

    Raises:
        RuntimeError: a training failed.
    """
    alone, watched = [], []
    for turn in range(rounds):
        for attach in (False, True) if turn % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory(prefix="public-") as folder:
                printed = train(name, Path(folder), steps=steps, watched=attach)
                if attach:
                    runs = Path(folder, "runs")
                    watched.append((printed, what_was_seen(runs, printed)))
                else:
                    alone.append(printed)
    return _row(name, alone, watched)


def _row(
    name: str, alone: Sequence[Printed | None], watched: Sequence[tuple[Printed | None, Seen]]
) -> list[str]:
    reference, seen = alone[0], watched[-1][1]
    assert reference is not None, "nothing stops a recipe that is alone"
    equal = all(
        one is not None and reference.same(one) for one in [*alone, *(each[0] for each in watched)]
    )
    pairs = [
        (with_us, without)
        for (with_us, _), without in zip(watched, alone, strict=True)
        if with_us is not None and without is not None
    ]
    worst = seen.findings[0] if seen.findings else None
    return [
        name,
        "yes" if equal else "NO",
        _percent(seen.losses),
        _percent(seen.evaluations),
        str(seen.labels),
        "" if worst is None else f"{worst.severity}: {worst.rule}",
        *_times(pairs),
    ]


def _times(pairs: Sequence[tuple[Printed, Printed]]) -> list[str]:
    """Return the times of the table.

    Args:
        pairs: what trainings printed, watched and alone.
    """
    if not pairs:
        return [""] * 5
    return [
        f"{median(without.cpu for _, without in pairs) * 1e3:.1f}",
        f"{median(with_us.cpu - without.cpu for with_us, without in pairs) * 1e3:.2f}",
        f"{median(with_us.usual - without.usual for with_us, without in pairs) * 1e3:.2f}",
        f"{median(with_us.wall / without.wall for with_us, without in pairs):.3f}",
        f"{median(with_us.cpu / without.cpu for with_us, without in pairs):.3f}",
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the recipes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=RECIPES, help="run only these recipes")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each kind per recipe")
    parser.add_argument("--steps", type=int, help="steps per training")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.only or RECIPES:
        if importlib.util.find_spec(RECIPES[name]) is None:
            print(f"{name}: skipped, {RECIPES[name]} is not installed")
            continue
        rows.append(measure(name, options.rounds, options.steps))
        print(f"{name}: done", flush=True)
    print(table(rows, _HEADERS))


if __name__ == "__main__":
    main()
