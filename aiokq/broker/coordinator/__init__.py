"""The coordinator of consumer groups, as pure machines on `__consumer_offsets`.

Owns groups and committed offsets. Only `runtime` knows a loop and a log; nothing here knows
sockets or tasks.
"""
