"""CPU time of single parts: `python -m benchmarks.micro.core` and others."""
