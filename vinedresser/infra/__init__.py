"""What lies below: storage, processes, the supervisor, tracking, configuration."""
