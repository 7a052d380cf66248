"""Connections of clients and servers: framing, transport, handshake, backoff, and limits."""
