"""Infrastructure: processes of runs, services, and the user's catalog of stores."""
