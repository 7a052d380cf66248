"""One peer: framing, transport, negotiation, security, backoff; client side and accepting side."""
