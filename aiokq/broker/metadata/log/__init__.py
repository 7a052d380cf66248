"""The metadata log: its files, the rules for the node that may append to it, reading and writing."""
