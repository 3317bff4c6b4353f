"""What exactness is shown for: every kind of model that there is a tiny checkpoint of, and every kind of sampler."""

from typing import Any

from tests.integration.stages.stage_calls import job
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_CONTROL_IMAGE, Attachment, JobSpec

_VIDEO = {"frame_count": 9}
# The stock blocks of SD3 guide by a negative prompt alone.
_NEGATIVE = {"negative_prompt": "a blue square"}
_FROM_IMAGE = {"extra": {"strength": 0.6}}
# Model, fields, and whether it begins with a picture.
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "sdxl": ("sdxl", {}, False),
    "flux": ("flux", {}, False),
    "sd3": ("sd3", _NEGATIVE, False),
    "wan": ("wan", _VIDEO, False),
    "wan from a first frame": ("wan-i2v", _VIDEO, True),
    "sdxl from an image": ("sdxl", _FROM_IMAGE, True),
    "flux from an image": ("flux", _FROM_IMAGE, True),
    "wan with two transformers": ("wan22", _VIDEO, False),
    "sdxl with a controlnet": ("sdxl-control", {}, True),
}
# Beside those that the models have of their own: SDXL Euler, FLUX and SD3 FlowMatchEuler, Wan UniPC for flows.
SAMPLERS: dict[str, tuple[str, dict[str, str]]] = {
    "euler-ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "dpmpp-2m": ("DPMSolverMultistepScheduler", {}),
    "dpmpp-sde": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "unipc": ("UniPCMultistepScheduler", {}),
    "lcm": ("LCMScheduler", {}),
}


def case_spec(case: str, picture: Attachment | None = None, step_count: int = 8) -> JobSpec:
    """A case's job."""
    model, fields, takes_picture = CASES[case]
    spec = job(model, step_count=step_count, **fields)
    if takes_picture:
        assert picture is not None
        spec.attachments.add().CopyFrom(picture)
        if model == "sdxl-control":
            spec.attachments[0].role = ATTACHMENT_ROLE_CONTROL_IMAGE
    return spec
