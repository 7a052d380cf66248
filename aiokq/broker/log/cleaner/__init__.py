"""Compaction: a log keeps the newest record of each key; the offsets of records do not change.

On the loop, ``log_to_clean`` and ``manager`` choose the dirtiest log, and ``cleaner`` swaps
segments. The long work is done by the generators of ``offset_map`` and ``group_rewriter``, over
files that do not change. An executor advances the generators step by step. A run can be throttled,
and stopped between two steps.
"""
