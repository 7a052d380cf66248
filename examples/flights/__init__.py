"""The flights job, which sends real flights through Kafka: `make run`."""
