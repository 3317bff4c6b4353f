"""Prices of jobs: a prior from the model, corrected by what calls took."""
