"""The metadata log: its files, who may append to it, and how it is read and written."""
