"""The replicas of partitions on this node: leadership, high watermark and pending requests.

This package uses ``log``, which stores records and does not decide what is committed. Topics,
coordinators and handlers use this package; it imports none of them.
"""
