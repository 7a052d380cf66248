"""Programs in four languages that write to Kafka through the gateway."""
