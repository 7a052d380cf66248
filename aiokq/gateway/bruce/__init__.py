"""The engine `bruce`: router and dispatcher after the design of Bruce, on `Cluster.produce`."""
