"""Requests of every shape, drawn by Hypothesis from the contract's own descriptors, and bytes that are no requests."""

import io
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from PIL import Image

# Stands for the id of a job that there is; put in when the request is sent.
SOME_JOB = "@job"
_DEPTH = 4
_WORDS = [
    "",
    "shapes",
    "default",
    "*",
    ">",
    "a.b",
    "../../etc/passwd",
    "file:///etc/passwd",
    "\x00",
    "é" * 300,
    "0" * 26,
]
_LONG = ["x" * 5_000, "\U0001f980" * 30_000]
_NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")]
_SPEC = "triptych.v1.JobSpec"
_PLAIN_SPEC = {"model": "shapes", "prompt": "a red circle", "step_count": 2}
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 8),
}


def requests(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Messages of this type: any fields, any values, at most `_DEPTH` deep."""
    return _values(descriptor, _DEPTH).map(lambda values: _make(descriptor, values))


def noise(descriptor: Descriptor) -> st.SearchStrategy[bytes]:
    """Bytes: of nothing at all, of a request that was cut or altered, or nested beyond what is parsed."""
    cut = st.tuples(requests(descriptor), st.integers(0, 400)).map(
        lambda drawn: drawn[0].SerializeToString()[: drawn[1]]
    )
    altered = st.tuples(requests(descriptor), st.binary(min_size=1, max_size=8), st.integers(0, 2000)).map(_altered)
    return st.one_of(st.binary(max_size=200), cut, altered, st.sampled_from([deep(30), deep(2_000)]))


def pictures() -> list[bytes]:
    """Attachments that are not what they say, or far more than they seem."""
    small, wide = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(small, "PNG")
    Image.new("1", (16_000, 16_000)).save(wide, "PNG")  # a few kilobytes; 256 million pixels
    png = small.getvalue()
    return [
        png,
        wide.getvalue(),
        png[:30],
        png[:20] + b"\xff" * 8 + png[28:],
        b"",
        b"GIF89a",
        b"RIFF\x00\x00\x00\x00WEBP",
    ]


_PICTURES = pictures()


def _values(descriptor: Descriptor, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        field.name: _field(field, depth) for field in descriptor.fields if depth > 0 or field.message_type is None
    }
    anything = st.fixed_dictionaries({}, optional=fields)
    if descriptor.full_name != _SPEC:
        return anything
    nearly = st.lists(st.sampled_from(sorted(fields)), max_size=2).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
    )
    return st.one_of(anything, nearly.map(lambda values: {**_PLAIN_SPEC, **values}))


def _field(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return st.dictionaries(_one(key, depth), _one(value, depth - 1), max_size=3)
    one = _one(field, depth)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _one(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return st.deferred(lambda: _values(field.message_type, depth - 1))
    match field.cpp_type:
        case _ if field.type == FieldDescriptor.TYPE_BYTES:
            return st.one_of(st.sampled_from(_PICTURES), st.binary(max_size=100))
        case FieldDescriptor.CPPTYPE_STRING:
            known = [SOME_JOB] * 5 if field.name == "job_id" else []
            return st.one_of(st.sampled_from([*known, *_WORDS]), st.text(max_size=30), st.sampled_from(_LONG))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return st.one_of(st.sampled_from(_NUMBERS), st.floats())
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
    low, high = _INTEGERS[field.cpp_type]
    return st.one_of(st.sampled_from([low, high, 0, 1, 2, 64, 96]), st.integers(low, high))


def _make(descriptor: Descriptor, values: dict[str, Any]) -> Message:
    made: Message = GetMessageClass(descriptor)()
    for name, value in values.items():
        field = descriptor.fields_by_name[name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"].message_type
            for key, each in value.items():
                getattr(made, name)[key].CopyFrom(_make(kind, each))
        elif field.message_type is not None and field.is_repeated:
            getattr(made, name).extend(_make(field.message_type, each) for each in value)
        elif field.message_type is not None:
            getattr(made, name).CopyFrom(_make(field.message_type, value))
        elif field.is_repeated:
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made


def _altered(drawn: tuple[Message, bytes, int]) -> bytes:
    message, patch, place = drawn
    whole = message.SerializeToString()
    start = place % (len(whole) + 1)
    return whole[:start] + patch + whole[start + len(patch) :]


def deep(levels: int) -> bytes:
    """A submit whose `spec.extra` is lists within lists."""
    value = b""
    for _ in range(levels):
        value = wire_field(6, wire_field(1, value))
    return wire_field(1, wire_field(18, wire_field(1, wire_field(1, b"x") + wire_field(2, value))))


def wire_field(number: int, data: bytes) -> bytes:
    """A length-delimited field as it is on the wire."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])
