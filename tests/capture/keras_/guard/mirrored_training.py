"""A Keras training on two replicas, logical devices of the CPU, of which one has a bad sample.

python -m tests.capture.keras_.guard.mirrored_training FOLDER
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


def main(folder: Path) -> None:
    """Train with a guard, without a hook and with a guard that stops, and save all weights.

    Args:
        folder: holds the runs "hook" and "stop", and the weights.
    """
    keras.utils.disable_interactive_logging()
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    images, wanted = data()
    for name in ("hook", "plain", "stop"):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            model = distances()
        hook = None
        if name != "plain":
            settings = SnapshotSettings(stop=name == "stop")
            hook = Hook(folder / name, guard="nonfinite", snapshots=settings).watch(model)
        try:
            model.fit(images, wanted, batch_size=BATCH, shuffle=False, verbose=0)
        finally:
            if hook is not None:
                hook.close()
            weights = {str(place): np.asarray(one) for place, one in enumerate(model.get_weights())}
            np.savez(folder / name, **weights)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
