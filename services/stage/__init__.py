"""What the three stage workers share: one stage of a pipeline in memory, a device thread, a heartbeat, a tidy end."""
