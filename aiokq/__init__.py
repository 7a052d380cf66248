"""aiokq: Kafka for asyncio."""
