"""The size of a job's outputs, where its client leaves it open."""

from math import sqrt

from triptych.catalog import CatalogModel
from triptych.images import Size
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ModelProfile


def fill_in_size(spec: JobSpec, model: CatalogModel, profile: ModelProfile, image: Size | None) -> None:
    """Set the width and the height that are unset: with an image by its shape, else to the model's defaults."""
    width, height = (model.defaults.width, model.defaults.height)
    if image is not None:
        multiple = side_multiple(profile)
        width, height = (_on_grid(side, model, multiple) for side in _like(image, spec, width * height))
    if not spec.HasField("width"):
        spec.width = width
    if not spec.HasField("height"):
        spec.height = height


def side_multiple(profile: ModelProfile) -> int:
    """Pixels that width and height are multiples of, at least 1."""
    return max(1, profile.vae_scale_factor) * max(1, profile.patch_size)


def _like(image: Size, spec: JobSpec, area: int) -> tuple[float, float]:
    """Width and height of the image's aspect: beside the side that is set, else on the area."""
    aspect = image[0] / image[1]
    width = spec.height * aspect if spec.HasField("height") else sqrt(area * aspect)
    height = spec.width / aspect if spec.HasField("width") else sqrt(area / aspect)
    return width, height


def _on_grid(side: float, model: CatalogModel, multiple: int) -> int:
    """The side rounded down to a multiple, and within what the model allows."""
    least, most = -(-model.limits.min_side // multiple), model.limits.max_side // multiple
    return max(least, min(round(side) // multiple, most)) * multiple
