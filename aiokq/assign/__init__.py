"""Assignors: pure functions that assign partitions to the members of a group.

Clients use those of the classic protocol, the broker those of KIP-848. The package also has the
bytes that members exchange about assignments. It knows no group, network or clock.
"""
