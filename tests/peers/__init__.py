"""Peers to test against: Apache Kafka, librdkafka's mock cluster, a scripted Kafka, and others."""
