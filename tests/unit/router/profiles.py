"""Models for the router's unit tests."""

from triptych.catalog import CatalogModel, Defaults, Limits
from triptych.v1.worker_pb2 import DeclaredInput, ModelProfile

IMAGE = CatalogModel(
    "somewhere",
    defaults=Defaults(step_count=20, guidance=4.0, width=512, height=512),
    limits=Limits(min_side=64, max_side=1024, max_pixels=512 * 1024, max_step_count=50, max_prompt_bytes=100),
)
VIDEO = CatalogModel(
    "somewhere",
    media_kind="video",
    defaults=Defaults(frame_count=17, fps=16.0, width=512, height=512),
    limits=Limits(max_frame_count=81, max_side=1024),
)
PROFILE = ModelProfile(
    name="model",
    vae_scale_factor=8,
    patch_size=2,
    vae_temporal_factor=4,
    inputs=[
        DeclaredInput(name="prompt", type_hint="str"),
        DeclaredInput(name="negative_prompt", type_hint="str | None"),
        DeclaredInput(name="image", type_hint="PIL.Image.Image"),
        DeclaredInput(name="mask_image", type_hint="PIL.Image.Image"),
        DeclaredInput(name="strength", type_hint="<class 'float'>"),
        DeclaredInput(name="clip_skip", type_hint="int | None"),
        DeclaredInput(name="use_resolution_binning", type_hint="bool"),
        DeclaredInput(name="mode", type_hint="typing.Optional[str]"),
        DeclaredInput(name="windows", type_hint="list"),
        DeclaredInput(name="embeds", type_hint="list[torch.Tensor]"),
        DeclaredInput(name="reference", type_hint="PIL.Image.Image | numpy.ndarray | torch.Tensor | None"),
        DeclaredInput(name="scales", type_hint="torch.Tensor | list[float]"),
        DeclaredInput(name="max_sequence_length", type_hint=""),
    ],
)
