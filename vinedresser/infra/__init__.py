"""Infrastructure: supervisor, launcher, relay, clusters, tracking, servers, configuration."""
