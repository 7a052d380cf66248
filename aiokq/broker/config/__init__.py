"""The settings of a broker: Kafka's names, types and rules; listeners and roles."""
