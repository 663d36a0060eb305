"""How many faulty trainings a pre-flight check finds."""
