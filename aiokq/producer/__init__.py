"""The producer: records in, acknowledged batches out; built on the cluster engine."""
