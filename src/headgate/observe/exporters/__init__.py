"""Events and calls for other systems: logs, Prometheus, OpenTelemetry."""
