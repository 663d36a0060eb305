"""Rules about how a training runs: its times, its processes."""
