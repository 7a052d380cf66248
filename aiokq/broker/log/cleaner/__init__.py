"""Compaction: a log keeps the newest record of each key; the offsets of records do not change.

The dirtiest log is chosen (``log_to_clean``, ``manager``) and segments are swapped (``cleaner``) on
the loop. The long work is in generators over files that do not change (``offset_map``,
``group_rewriter``). An executor advances the generators step by step. A run can be throttled, and
stopped between two steps.
"""
