"""The admin client: topics, configs, records, groups, transactions; public as `aiokq.Admin`."""
