"""TLS of clients and brokers: stores, contexts, renewal, transport, principals of certificates."""
