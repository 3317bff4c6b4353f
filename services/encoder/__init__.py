"""The encoder: prompt and attachments become conditioning, most of it from the cache."""
