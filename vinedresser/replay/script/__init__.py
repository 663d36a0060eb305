"""Running the step of a snapshot again in the script that trained, without a factory."""
