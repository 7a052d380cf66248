"""Other makes to test against: Apache Kafka, librdkafka's mock cluster, a scripted peer."""
