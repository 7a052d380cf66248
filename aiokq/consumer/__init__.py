"""The consumer: subscribes to topics, fetches records ahead, delivers them, and commits offsets."""
