"""Groups of the classic protocol: members join, and a leader among them assigns partitions."""
