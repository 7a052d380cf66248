"""The replicas of partitions on this node: leadership, high watermark and pending requests.

This package uses ``log``, which stores records and does not decide which of them are committed.
Topics, coordinators and handlers use this package; this package does not import them.
"""
