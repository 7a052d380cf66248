"""Record batches as bytes: headers, compression, legacy formats, control records.

Owns no connection, file or cluster state, and no hot loop (that is ``aiokq.fastpath``).
"""
