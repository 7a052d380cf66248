"""Reads and checks the settings of a broker, which have Kafka's names, types and rules."""
