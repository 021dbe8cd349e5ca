"""The dashboard for Grafana: what it asks of Prometheus, and whether it gets an answer."""
