"""Compaction: a log keeps the newest record of each key; the offsets of records do not change.

On the loop the dirtiest log is chosen (``log_to_clean``, ``manager``) and segments are swapped
(``cleaner``). The long work is in generators over files that do not change (``offset_map``,
``group_rewriter``). An executor advances them step by step, so that a run can be throttled, and
stopped between two steps.
"""
