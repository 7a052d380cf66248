"""What `make bench` measures: each suite returns sections of the report."""
