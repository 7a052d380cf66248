"""The command line `aiokq`, but for `aiokq broker`, which is aiokq.broker.process."""
