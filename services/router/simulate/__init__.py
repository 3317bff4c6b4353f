"""The scheduler's second clock: jobs of a trace, on workers that only take time."""
