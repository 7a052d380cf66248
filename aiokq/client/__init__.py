"""`Cluster`, the entry point for one Kafka cluster, and its health and registry views."""
