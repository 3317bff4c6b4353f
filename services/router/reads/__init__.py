"""What clients may see: jobs, their events, previews and outputs, and the fleet."""
