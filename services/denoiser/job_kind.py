"""Which jobs' forwards may be computed together: those that allow it and are likely to be equal in shape."""

from diffusers.guiders import BaseGuidance

from services.stage.checkpoint import DENOISE
from services.stage.hosted_block import guiders
from services.stage.hosted_model import HostedModel
from triptych.merge_key import merge_key
from triptych.v1.job_pb2 import JobSpec


def job_kind(model: HostedModel, spec: JobSpec) -> str | None:
    """Equal for jobs that are to look out for each other; None for one whose forwards are computed alone.

    It is a hint: what is computed together is decided call by call. A guider that changes the network around a forward
    (one that skips layers, say) keeps its job alone.
    """
    if any(_changes_network(guider) for guider in guiders(model.block(DENOISE).pipeline).values()):
        return None
    return merge_key(spec) or None


def _changes_network(guider: BaseGuidance) -> bool:
    return type(guider).prepare_models is not BaseGuidance.prepare_models
