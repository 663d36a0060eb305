"""Reading of training data, compared with plain reading and with other libraries."""
