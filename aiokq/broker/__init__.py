"""The embedded broker, which serves Kafka's protocol and stores logs in Kafka's format."""
