"""The embedded broker: Kafka's protocol and log format, served from one event loop."""
