"""The metadata controller: checks requests and decides which records to append."""
