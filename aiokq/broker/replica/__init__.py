"""The replicas of partitions on this node: who leads them, what is committed, who waits for it.

Stands on ``log``, which stores records and decides nothing about commitment. Topics, coordinators
and handlers stand on this package; it imports none of them.
"""
