"""The metadata image: its records, their encoding and replay, and the state that they produce."""
