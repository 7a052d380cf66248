"""Looking at log directories without touching them: what is in their files, and what is wrong."""
