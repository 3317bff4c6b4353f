"""The workers: which there are, how they are called, and what their answers mean."""
