"""The engine `bruce`: follows the design of Bruce, and sends requests by `Cluster.produce`."""
