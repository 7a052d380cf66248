"""The transaction coordinator: transactional ids, their producers and their transactions.

`shard` decides and replays, `completion` writes the markers, `coordinator` connects them with
requests. The records are Kafka's, in `__transaction_state`.
"""
