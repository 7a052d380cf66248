"""Connections to one peer, for client and server: framing, transport, handshake, backoff."""
