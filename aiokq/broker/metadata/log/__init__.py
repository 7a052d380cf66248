"""The metadata log: its files, the rules for who may append to it, reading and writing."""
