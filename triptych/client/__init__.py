"""The client: submit, watch, cancel, download. Needs no extra and no torch."""

from triptych.client.client import Client
from triptych.client.local_suite import DEFAULT_ADDRESS, find_router
from triptych.client.media import Media, attachment, replace_file
from triptych.client.patience import Patience
from triptych.tls import TlsFiles

__all__ = ["DEFAULT_ADDRESS", "Client", "Media", "Patience", "TlsFiles", "attachment", "find_router", "replace_file"]
