"""The checks of a training, one file each."""
