"""The transaction coordinator: transactional ids, their producers and their transactions.

`coordinator` handles requests, `shard` decides which records to write and replays them, and
`completion` writes the markers. The records in `__transaction_state` have Kafka's formats.
"""
