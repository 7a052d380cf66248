"""SASL on the broker: the order of requests, one module per mechanism, and their credentials.

`sasl_login.py` has the state machine. Mechanisms know neither requests nor connections' states.
"""
