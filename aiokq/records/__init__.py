"""Record batches as bytes: headers, compression, legacy formats, control records.

The package has no connections, files or cluster state; the hot loops are in ``aiokq.fastpath``.
"""
