"""Reading recorded requests, from any process."""
