"""Real flights through a Kafka: `python -m examples.flights`."""
