"""What makes the clients of one cluster belong together; public as `aiokq.Cluster`."""
