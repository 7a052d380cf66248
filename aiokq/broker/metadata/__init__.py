"""The metadata of the cluster: decisions about it, its log, and its effects on a node (ADR 11)."""
