"""SASL on the broker: the state machine of a login, the mechanisms, and their credentials.

The state machine is in `sasl_login.py`; each mechanism has a module. Mechanisms depend neither on
requests nor on the state of a session.
"""
