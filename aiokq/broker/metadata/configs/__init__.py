"""The settings of topics, groups and loggers: their tables, changes and descriptions."""
