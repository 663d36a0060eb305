"""Collections: named sets of tensors and their save schedules."""
