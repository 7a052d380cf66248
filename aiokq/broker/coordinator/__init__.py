"""The coordinator runtime, and the coordinators that run on it.

A coordinator keeps state in the partitions of an internal topic. The runtime owns a shard for each
partition that this node leads, and loads the shard from the partition's log. For a request that
changes state, the runtime appends records, replays them and responds, in that order. `group` is the
group coordinator, and `transaction` is the transaction coordinator.
"""
