"""Recording requests in the process that serves them."""
