"""What customers ask for, and what they do to it: drawn from a seed, the same again for the same seed. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, MEDIA_FORMAT_PNG, Attachment, JobSpec

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


class Fate(StrEnum):
    """What happens to a job by its customer's will."""

    KEPT = "kept"
    # Cancelled while it waits or runs.
    CANCELLED = "cancelled"
    # Asked for more steps, or for what it has now.
    AMENDED = "amended"
    # Asked for in one stream with its outputs, which the customer leaves: that cancels the job.
    LEFT = "left"
    # Cannot succeed: image to image at a strength that leaves no step.
    POISON = "poison"


@dataclass(frozen=True, slots=True)
class Order:
    """A job and its customer's doings.

    `kind`: name of the undisturbed result that it must equal; empty if there is none. `deed_after`: so many events
    after which the customer cancels, amends or leaves. `drops`: so many events after which the connection is given up
    and another one goes on.
    """

    spec: JobSpec
    fate: Fate = Fate.KEPT
    kind: str = ""
    deed_after: int = 1
    drops: tuple[int, ...] = ()
    long: bool = False


def kinds() -> dict[str, JobSpec]:
    """The jobs that are made undisturbed first, by name."""
    found = {f"sdxl-{seed}": _spec("sdxl", seed, step_count=3 + seed) for seed in range(3)}
    found |= {f"flux-{seed}": _spec("flux", seed, step_count=4) for seed in range(2)}
    found["sdxl-pair"] = _spec("sdxl", 7, step_count=3, output_count=2)
    found["sdxl-many-steps"] = _spec("sdxl", 3, step_count=40)
    found["clip"] = _spec("clip", 1, step_count=3)
    return found


def long_kinds(step_count: int) -> dict[str, JobSpec]:
    """Two orders of three videos of many steps, by name."""
    size = {"width": 128, "height": 128, "frame_count": 17, "output_count": 3}
    return {f"long-{seed}": _spec("clip", seed, step_count=step_count, **size) for seed in range(2)}


def orders(seed: int) -> Iterator[Order]:
    """Short orders for ever."""
    rng = random.Random(f"orders {seed}")
    known = kinds()
    while True:
        fate = rng.choices(list(Fate), weights=(70, 9, 8, 7, 6))[0]
        deed_after = rng.randint(1, 4)
        drops = tuple(rng.randint(1, 3) for _ in range(rng.choice((0, 0, 1, 2))))
        if fate is Fate.POISON:
            yield Order(_poison(rng.randrange(1000)), fate, drops=drops)
        elif fate is Fate.AMENDED:
            yield Order(_fresh(rng, step_count=30), fate, deed_after=deed_after, drops=drops)
        elif rng.random() < 0.3:
            yield Order(_fresh(rng, step_count=4), fate, deed_after=deed_after, drops=drops)
        else:
            kind = rng.choice(list(known))
            spec = _previewed(known[kind]) if rng.random() < 0.2 else known[kind]
            yield Order(spec, fate, kind, deed_after, drops)


def long_orders(step_count: int) -> Iterator[Order]:
    """Long orders for ever, the kinds in turn."""
    while True:
        for kind, spec in long_kinds(step_count).items():
            yield Order(spec, kind=kind, drops=(5, 9), long=True)


def _spec(model: str, seed: int, **fields: int) -> JobSpec:
    return JobSpec(
        model=model,
        prompt=f"undisturbed {seed}",
        seed=seed,
        output_format=MEDIA_FORMAT_PNG,
        **fields,  # type: ignore[arg-type]
    )


def _previewed(spec: JobSpec) -> JobSpec:
    """The same job, which must make the same, watched at its work."""
    previewed = JobSpec()
    previewed.CopyFrom(spec)
    previewed.preview.every_steps = 1
    return previewed


def _fresh(rng: random.Random, step_count: int) -> JobSpec:
    """A prompt that no cache knows, and forwards that may be merged with others'."""
    return JobSpec(
        model=rng.choice(("sdxl", "flux")),
        prompt=f"fresh {rng.random()}",
        seed=rng.randrange(1 << 30),
        step_count=step_count,
        reproducible=False,
    )


def _poison(seed: int) -> JobSpec:
    picture = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=PIXEL)
    spec = JobSpec(model="sdxl", prompt="poison", seed=seed, step_count=1, attachments=[picture])
    spec.extra.update({"strength": 0.3})
    return spec
