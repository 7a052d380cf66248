"""The producer: collects records in batches, and sends the batches to the partitions' leaders."""
