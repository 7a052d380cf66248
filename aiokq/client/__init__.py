"""`Cluster`, which the clients of one Kafka cluster share, and its health and registry views."""
