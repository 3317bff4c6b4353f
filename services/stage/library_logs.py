"""What the libraries that run models may write to the log."""

import logging

_LIBRARIES = ("diffusers", "transformers")


def silence_libraries() -> None:
    """Nothing, from the first job on: their warnings and errors quote prompts.

    What they warn of is told by counts (`TextReading`); their errors are raised too, and told to the client.
    """
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
