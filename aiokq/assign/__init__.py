"""Assignors, which assign partitions to the members of a group.

Clients use the assignors of the classic protocol, and the broker uses those of KIP-848. The package
also encodes and decodes the data that members exchange about assignments. It uses neither the
network nor the clock.
"""
