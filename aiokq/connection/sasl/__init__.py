"""SASL mechanisms of the client, one per module; `authentication.py` runs the exchange."""
