"""The way in: what clients ask for, checked, priced, and accepted or refused."""
