"""Attachments are what an image viewer shows, or refused before admission: at the router and in a stage alike."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from services.router.intake.validation import complete_spec
from services.stage.job_inputs import job_inputs
from tests.image_files import ALPHA, FILES, NOISE, RGB, ImageFile, Pixels, png
from tests.unit.router.profiles import IMAGE
from triptych.attachments import ATTACHMENT_INPUTS
from triptych.catalog import Limits
from triptych.errors import Reason, TriptychError
from triptych.images import fit, is_shape_of
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, ATTACHMENT_ROLE_MASK, Attachment, AttachmentRole, JobSpec
from triptych.v1.worker_pb2 import DeclaredInput, ModelProfile

MODEL = replace(IMAGE, limits=Limits(min_side=1))
DECLARED = [SimpleNamespace(name=name, type_hint=None, default=None) for name in ATTACHMENT_INPUTS.values()]


@pytest.fixture
def profile() -> ModelProfile:
    """Of a model that takes an image of every role, of any size."""
    inputs = [DeclaredInput(name=name) for name in ATTACHMENT_INPUTS.values()]
    return ModelProfile(name="model", vae_scale_factor=1, patch_size=1, inputs=inputs)


def with_image(file: ImageFile, role: "AttachmentRole.ValueType") -> JobSpec:
    """A job with the file under a media type that is not its own; a mask with an image of its shape."""
    size = (8, 8) if file.shown is None else (file.shown.shape[1], file.shown.shape[0])
    spec = JobSpec(model="model", prompt="a star", width=size[0], height=size[1])
    spec.attachments.add(role=role, media_type="image/gif", data=file.data)
    if role == ATTACHMENT_ROLE_MASK:
        spec.attachments.add(role=ATTACHMENT_ROLE_IMAGE, data=png(np.zeros((size[1], size[0], 3), np.uint8), 8, 2))
    return spec


def refusal(error: TriptychError) -> list[tuple[str, str]]:
    assert error.reason is Reason.INVALID_FIELD
    return [(violation.field, violation.description) for violation in error.violations]


def difference(image: Image.Image, want: Pixels) -> int:
    got = np.asarray(image)
    assert got.shape == want.shape
    return int(np.abs(got.astype(int) - want).max())


@pytest.mark.parametrize("role", ATTACHMENT_INPUTS, ids=ATTACHMENT_INPUTS.values())
@pytest.mark.parametrize("file", [file for file in FILES if not file.refused], ids=lambda file: file.name)
def test_what_a_viewer_shows_goes_in(file: ImageFile, role: "AttachmentRole.ValueType", profile: ModelProfile) -> None:
    spec = complete_spec(with_image(file, role), MODEL, profile)
    assert spec.attachments[0].media_type in ("image/png", "image/jpeg", "image/webp")
    image = job_inputs(spec, DECLARED)[ATTACHMENT_INPUTS[role]]
    want = file.mask if role == ATTACHMENT_ROLE_MASK else file.shown
    assert want is not None
    assert image.mode == ("L" if role == ATTACHMENT_ROLE_MASK else "RGB")
    assert difference(image, want) <= file.tolerance


@pytest.mark.parametrize("role", ATTACHMENT_INPUTS, ids=ATTACHMENT_INPUTS.values())
@pytest.mark.parametrize("file", [file for file in FILES if file.refused], ids=lambda file: file.name)
def test_what_cannot_be_shown_is_refused(
    file: ImageFile, role: "AttachmentRole.ValueType", profile: ModelProfile
) -> None:
    spec = with_image(file, role)
    with pytest.raises(TriptychError) as at_the_router:
        complete_spec(spec, MODEL, profile)
    with pytest.raises(TriptychError) as in_a_stage:
        job_inputs(spec, DECLARED)
    [(field, why)] = refusal(at_the_router.value)
    assert refusal(in_a_stage.value) == [(field, why)]
    assert field == "spec.attachments[0].data"
    assert file.refused in why


def test_the_size_is_that_of_the_image_upright(profile: ModelProfile) -> None:
    [file] = [file for file in FILES if file.name == "EXIF orientation 6"]
    assert file.shown is not None
    spec = with_image(file, ATTACHMENT_ROLE_IMAGE)
    spec.ClearField("width")
    spec.height = 60
    assert complete_spec(spec, MODEL, profile).width == 60 * file.shown.shape[1] // file.shown.shape[0]


@pytest.mark.parametrize("size", [(64, 64), (64, 32), (32, 64), (48, 16), (16, 128)])
@pytest.mark.parametrize("shape", [(40, 40), (10, 80), (80, 10), (63, 65), (1, 200), (200, 1), (1, 1)])
def test_an_image_covers_the_jobs_size_from_its_middle(size: tuple[int, int], shape: tuple[int, int]) -> None:
    image = Image.fromarray(np.resize(NOISE, (shape[1], shape[0], 3)))
    scale = max(size[0] / image.width, size[1] / image.height)
    left, top = ((side - wanted / scale) / 2 for side, wanted in zip(image.size, size, strict=True))
    assert min(left, top) == pytest.approx(0)
    middle = tuple(max(0.0, edge) for edge in (left, top, image.width - left, image.height - top))
    want = image.resize(size, Image.Resampling.LANCZOS, box=middle)
    assert difference(fit(image, size), np.asarray(want)) <= 1


def test_an_image_of_the_jobs_size_is_left_as_it_is() -> None:
    image = Image.fromarray(NOISE)
    assert fit(image, image.size) is image


def images_of(image: Pixels, mask: Pixels, size: tuple[int, int]) -> tuple[Pixels, Pixels]:
    """What a stage makes of an image and its mask."""
    spec = JobSpec(width=size[0], height=size[1])
    spec.attachments.add(role=ATTACHMENT_ROLE_MASK, data=png(mask, 8, 0))
    spec.attachments.add(role=ATTACHMENT_ROLE_IMAGE, data=png(image, 8, 2))
    inputs = job_inputs(spec, DECLARED)
    return np.asarray(inputs["image"]), np.asarray(inputs["mask_image"])


@pytest.mark.parametrize("size", [(64, 64), (96, 32), (32, 96)])
def test_a_mask_is_cut_as_its_image_is(size: tuple[int, int]) -> None:
    coarse = (np.indices((30, 50)).sum(0) // 5 % 2 * 255).astype(np.uint8)
    drawn = np.kron(coarse, np.ones((2, 2), np.uint8))
    image, mask = images_of(np.dstack([drawn] * 3), drawn, size)
    assert np.array_equal(image[..., 0], mask)
    # At half the resolution its edges are softer, and lie where they lay.
    _, soft = images_of(np.dstack([drawn] * 3), coarse, size)
    assert ((soft > 127) == (mask > 127)).mean() > 0.95


def test_a_mask_of_another_shape_is_refused(profile: ModelProfile) -> None:
    spec = JobSpec(model="model", prompt="a star", width=64, height=64)
    spec.attachments.add(role=ATTACHMENT_ROLE_IMAGE, data=png(NOISE, 8, 2))
    spec.attachments.add(role=ATTACHMENT_ROLE_MASK, data=png(NOISE[:32, :, 0], 8, 0))
    with pytest.raises(TriptychError) as caught:
        complete_spec(spec, MODEL, profile)
    why = "the mask has 64 × 32 pixels, its image 64 × 64: give both the same shape"
    assert refusal(caught.value) == [("spec.attachments", why)]


@pytest.mark.parametrize(
    ("mask", "image", "same"),
    [
        ((64, 48), (64, 48), True),
        ((50, 38), (1000, 751), True),
        ((333, 250), (1000, 751), True),
        ((64, 64), (64, 48), False),
        ((48, 64), (64, 48), False),
        ((512, 512), (1920, 1080), False),
    ],
)
def test_a_shape_is_the_same_but_for_rounding(mask: tuple[int, int], image: tuple[int, int], same: bool) -> None:
    assert is_shape_of(mask, image) is same


def test_the_colours_under_what_is_transparent_do_not_matter() -> None:
    """An image, hidden under alpha, came out as if it were there."""
    spec = JobSpec(width=RGB.shape[1], height=RGB.shape[0])
    hidden = ALPHA // 128 * 255
    made = []
    for colours in (RGB, np.where(hidden[..., None] > 0, RGB, 99).astype(np.uint8)):
        del spec.attachments[:]
        spec.attachments.append(Attachment(role=ATTACHMENT_ROLE_IMAGE, data=png(np.dstack([colours, hidden]), 8, 6)))
        made.append(np.asarray(job_inputs(spec, DECLARED)["image"]))
    assert np.array_equal(*made)
    assert (made[0][hidden == 0] == 255).all()
