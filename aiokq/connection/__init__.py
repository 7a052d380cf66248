"""Opens, accepts and closes connections, and sends Kafka's requests and responses over them."""
