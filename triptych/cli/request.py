"""From command-line options to a job."""

import argparse
from pathlib import Path

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from triptych.cli.failures import EXIT_BAD_INPUT, Failure
from triptych.cli.previews import add_preview_options, preview_policy
from triptych.cli.values import duration, pair, positive, seed, size, words
from triptych.client import Client, attachment
from triptych.durations import duration_of
from triptych.v1 import job_pb2

FORMATS = {
    "png": job_pb2.MEDIA_FORMAT_PNG,
    "jpeg": job_pb2.MEDIA_FORMAT_JPEG,
    "jpg": job_pb2.MEDIA_FORMAT_JPEG,
    "webp": job_pb2.MEDIA_FORMAT_WEBP,
    "mp4": job_pb2.MEDIA_FORMAT_MP4,
}
CLASSES = {
    "batch": job_pb2.PRIORITY_CLASS_BATCH,
    "standard": job_pb2.PRIORITY_CLASS_STANDARD,
    "premium": job_pb2.PRIORITY_CLASS_PREMIUM,
}
ROLES = {
    "image": job_pb2.ATTACHMENT_ROLE_IMAGE,
    "mask": job_pb2.ATTACHMENT_ROLE_MASK,
    "control_image": job_pb2.ATTACHMENT_ROLE_CONTROL_IMAGE,
    "last_image": job_pb2.ATTACHMENT_ROLE_LAST_IMAGE,
}


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """The options that describe a job. What is left out takes the model's default."""
    parser.add_argument("prompt", type=words, metavar="PROMPT", help="what to make")
    parser.add_argument("--model", type=words, metavar="NAME", help="model from the catalog (default: the only one)")
    parser.add_argument(
        "--negative-prompt",
        "--negative",
        type=words,
        metavar="TEXT",
        help='what to keep out; left out, most models do something else than with ""',
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="denoising steps")
    parser.add_argument("--seed", type=seed, metavar="N", help="same seed, same picture, bit for bit")
    parser.add_argument("--guidance", type=float, metavar="X", help="how closely to follow the prompt")
    parser.add_argument("--size", type=size, metavar="WxH", help="pixels, such as 96x96 (default: by --image)")
    parser.add_argument("--count", type=positive, metavar="N", help="how many outputs, 1 to 4")
    parser.add_argument("--frames", type=positive, metavar="N", help="frames of a video")
    parser.add_argument("--fps", type=float, metavar="X", help="frames per second of a video")
    parser.add_argument("--format", choices=sorted(FORMATS), help="file format (default: by the ending of -o)")
    parser.add_argument("--priority", choices=list(CLASSES), help="priority class")
    parser.add_argument(
        "--deadline",
        type=duration,
        metavar="TIME",
        help="refuse the job at once if it would not be done within this time, such as 30s, 2m or 1h",
    )
    for role in ROLES:
        flag = "--" + role.replace("_", "-")
        what = f"PNG, JPEG or WebP to use as {role.replace('_', ' ')}"
        painted = "; white, or what is transparent, is painted anew" if role == "mask" else ""
        parser.add_argument(flag, type=Path, metavar="FILE", help=what + painted)
    add_preview_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=pair,
        dest="extra",
        metavar="KEY=VALUE",
        help="another input of the model, such as strength=0.6",
    )


async def build_spec(args: argparse.Namespace, client: Client, output: Path | None = None) -> job_pb2.JobSpec:
    """The job that the options ask for. Raises `TriptychError` for a file that cannot be attached."""
    spec = job_pb2.JobSpec(
        model=args.model or await _only_model(client),
        prompt=args.prompt,
        negative_prompt=args.negative_prompt,
        seed=args.seed,
        step_count=args.steps,
        guidance=args.guidance,
        output_count=args.count,
        frame_count=args.frames,
        fps=args.fps,
        output_format=_format(args.format, output),
    )
    if args.size is not None:
        spec.width, spec.height = args.size
    if args.priority is not None:
        spec.priority_class = CLASSES[args.priority]
    if args.deadline is not None:
        spec.finish_within.CopyFrom(duration_of(args.deadline))
    policy = preview_policy(args)
    if policy is not None:
        spec.preview.CopyFrom(policy)
    for role, value in ROLES.items():
        path = getattr(args, role)
        if path is not None:
            spec.attachments.append(attachment(path, value))
    for key, value in args.extra:
        spec.extra.fields[key].CopyFrom(ParseDict(value, Value()))
    return spec


async def _only_model(client: Client) -> str:
    names = [model.name for model in await client.models()]
    if len(names) == 1:
        return names[0]
    raise Failure(f"which model? --model is one of: {', '.join(names) or '(none is served)'}", EXIT_BAD_INPUT)


def _format(name: str | None, output: Path | None) -> job_pb2.MediaFormat.ValueType:
    if name is None and output is not None:
        name = output.suffix.removeprefix(".").lower()
        if name and name not in FORMATS:
            raise Failure(f"{output}: no format is called {name!r}; there are {', '.join(FORMATS)}", EXIT_BAD_INPUT)
    return FORMATS.get(name or "", job_pb2.MEDIA_FORMAT_UNSPECIFIED)
