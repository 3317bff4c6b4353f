"""What the proof programs share: jobs of known outcome, customers, their accounts, faults, hosts to cut off."""
