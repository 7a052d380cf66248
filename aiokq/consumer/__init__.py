"""The consumer: subscriptions, positions, fetching ahead, and the ways records leave it."""
