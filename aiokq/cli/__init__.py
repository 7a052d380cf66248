"""The command line `aiokq`, except `aiokq broker`, which is in aiokq.broker.process."""
