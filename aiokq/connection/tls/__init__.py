"""TLS of both ends: stores and contexts, renewal, the transport, principals of certificates."""
