"""Triptych: serve diffusion models as a suite of gRPC services."""

__version__ = "0.1.0"
