"""A Keras training on two replicas, logical devices of the CPU, of which one has a bad sample.

python -m tests.capture.keras_.guard.mirrored_training FOLDER [stop]
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests.capture.keras_.guard.trainings import BATCH, data, distances
from vinedresser.capture import Hook
from vinedresser.snapshots.settings import SnapshotSettings


def main(folder: Path, *, stop: bool) -> None:
    """Train with a guard and without a hook, and save the weights of both.

    Args:
        folder: holds the run, and the weights.
        stop: whether the guard stops the training, which is then only made once.
    """
    keras.utils.disable_interactive_logging()
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    images, wanted = data()
    for name in ["hook"] if stop else ["hook", "plain"]:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            model = distances()
        hook = None
        if name == "hook":
            settings = SnapshotSettings(stop=stop)
            hook = Hook(folder / "run", guard="nonfinite", snapshots=settings).watch(model)
        try:
            model.fit(images, wanted, batch_size=BATCH, shuffle=False, verbose=0)
        finally:
            if hook is not None:
                hook.close()
            weights = {str(place): np.asarray(one) for place, one in enumerate(model.get_weights())}
            np.savez(folder / name, **weights)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), stop="stop" in sys.argv[2:])
