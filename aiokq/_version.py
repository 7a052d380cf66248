"""The version of aiokq. The build reads this file without importing aiokq."""

__version__ = "0.1.0"
