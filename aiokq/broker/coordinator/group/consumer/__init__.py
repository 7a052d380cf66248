"""Groups of the consumer protocol (KIP-848): responses to heartbeats assign partitions."""
