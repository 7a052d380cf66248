"""Real flights through a Kafka: `make run`."""
