"""Compaction: a log keeps the newest record of each key, and every offset stays what it was.

The loop chooses the dirtiest log (``choice``, ``manager``) and swaps segments in (``cleaner``);
what takes long is made of generators that an executor advances step by step over files that do not
change (``indexing``, ``rewriting``), so that a run may be throttled, and stopped between two steps.
"""
