"""The base layer: what every other layer builds on, and what itself builds on nothing."""
