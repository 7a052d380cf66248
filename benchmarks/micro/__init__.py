"""What single parts cost, in CPU time: `python -m benchmarks.micro.core` and the like."""
