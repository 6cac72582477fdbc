"""Inner tasks that ship with lobench; each module is imported by the gin files that name its tasks."""
