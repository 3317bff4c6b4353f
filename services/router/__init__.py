"""The router: prices, admits and dispatches jobs."""
