"""The start of a node's metadata: its log, first records, and found or missing partitions."""
