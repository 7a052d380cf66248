"""Groups of the consumer protocol (KIP-848): members send heartbeats, the broker assigns."""
