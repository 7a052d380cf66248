"""The consumer: subscriptions, positions, fetching ahead, and the delivery of records."""
