"""The spool: messages are written to files before delivery, and survive a SIGKILL (ADR 19).

spool.py      Spool: the interface for the gateway
opening.py    locks the directory, and finds messages without an outcome
segment.py    a file of messages, and the file of their outcomes
reading.py    feeds the pool from the segments, in order
change.py     writes outcomes and deletes segments, in a thread
"""
