"""Break a Keras training on torch: ``python -m tests.replay.keras_.torch_story RUN STORY``."""

from __future__ import annotations

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

from tests.capture.keras_.guard.trainings import distances, halves, train

if __name__ == "__main__":
    run, story = sys.argv[1:]
    half = story == "halves"
    plain, _ = train(None, halves() if half else distances(), half=half)
    guarded, problems = train(run, halves() if half else distances(), half=half)
    assert guarded == plain
    assert problems == []
