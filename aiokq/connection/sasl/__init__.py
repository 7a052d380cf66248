"""SASL mechanisms of the client, one per module; the exchange itself is in `handshake.py`."""
