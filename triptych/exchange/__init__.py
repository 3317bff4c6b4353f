"""Bundles of tensors between processes, over NATS JetStream."""

from triptych.exchange.bundle import Bundle, Entry, TensorData, Value
from triptych.exchange.config import ExchangeConfig
from triptych.exchange.errors import (
    BundleCorrupt,
    BundleGone,
    BundleInvalid,
    DiskFull,
    ExchangeError,
    ExchangeUnavailable,
    StoreFull,
    StreamConflict,
)
from triptych.exchange.exchange import Exchange
from triptych.exchange.parcel import pack, unpack
from triptych.exchange.streams import events_subject

__all__ = [
    "Bundle",
    "BundleCorrupt",
    "BundleGone",
    "BundleInvalid",
    "DiskFull",
    "Entry",
    "Exchange",
    "ExchangeConfig",
    "ExchangeError",
    "ExchangeUnavailable",
    "StoreFull",
    "StreamConflict",
    "TensorData",
    "Value",
    "events_subject",
    "pack",
    "unpack",
]
