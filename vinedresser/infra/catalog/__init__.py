"""What this user's flows have noted on this machine, by store: runs, flow runs, tracking URIs."""
