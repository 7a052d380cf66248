"""The coordinator of consumer groups: groups of both protocols and their committed offsets.

It is the coordinator runtime on `__consumer_offsets`. `classic` and `consumer` each hold one group
protocol; `migration` holds the changes from one protocol to the other.
"""
