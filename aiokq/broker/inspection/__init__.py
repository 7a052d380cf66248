"""Read-only inspection of log directories: the contents of their files, and damage."""
