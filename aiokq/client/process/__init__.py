"""`process()`: consume, transform and produce as one coroutine, exactly once or at least once."""
