"""The producer: records in, acknowledged batches out; it stands on the cluster engine."""
