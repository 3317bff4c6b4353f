"""Text from elsewhere for a terminal: what would steer the terminal is shown instead of obeyed."""

import re

# Control characters but tab and line feed, and those that turn the direction of writing.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text, each steering character as its escape, as in Python and in JSON: "\\u001b"."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
