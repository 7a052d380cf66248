"""The cluster's metadata: the controller, the metadata log, and changes of the node (ADR 11)."""
