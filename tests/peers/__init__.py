"""Other makes to test and measure against: Apache Kafka, librdkafka's mock cluster, a scripted peer."""
