"""The spool: messages are in files before they are delivered, and survive a SIGKILL (ADR 19).

spool.py      Spool: what the gateway uses
opening.py    locks the directory, and finds what has no outcome yet
segment.py    a file of messages, and beside it the file of those that are finished
reading.py    feeds the pool from the segments, in order
"""
