"""Runs a whole suite on one machine: NATS, the router and the stage workers, as processes."""

from triptych.supervisor.config import SuiteConfig, default_catalog
from triptych.supervisor.service import RestartPolicy, Service, ServiceState
from triptych.supervisor.state_dir import SuiteRunning
from triptych.supervisor.suite import Suite, SuiteError

__all__ = [
    "RestartPolicy",
    "Service",
    "ServiceState",
    "Suite",
    "SuiteConfig",
    "SuiteError",
    "SuiteRunning",
    "default_catalog",
]
