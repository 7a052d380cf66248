"""The metadata log: its files, which node may append to it, and how it is read and written."""
