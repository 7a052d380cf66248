"""The admin client, public as `aiokq.Admin`: manages topics, configs, groups and transactions."""
