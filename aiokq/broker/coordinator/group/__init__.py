"""The coordinator of consumer groups: groups of both protocols and their committed offsets.

The group coordinator is the coordinator runtime on `__consumer_offsets`. `classic` and `consumer`
each implement one group protocol; `migration` changes groups from one protocol to the other.
"""
