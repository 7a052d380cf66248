"""The admin client: topics, partitions, configs, offsets and records; public as `aiokq.Admin`."""
