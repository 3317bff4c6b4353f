"""The contract keeps to buf's STANDARD rules of naming, so that other languages generate what they expect."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PROTOS = Path(__file__).parents[2] / "protos"
FILES = sorted(path.relative_to(PROTOS) for path in PROTOS.rglob("*.proto"))
PASCAL = re.compile(r"([A-Z][a-z0-9]*)+")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def file(request: pytest.FixtureRequest) -> Any:
    """The descriptor of one file of the contract."""
    name = ".".join(request.param.with_suffix("").parts)
    return import_module(f"{name}_pb2").DESCRIPTOR


def messages_of(holder: Any) -> Iterator[Any]:
    """The messages of a file, those within others too."""
    for message in getattr(holder, "message_types_by_name", getattr(holder, "nested_types_by_name", {})).values():
        yield message
        yield from messages_of(message)


def enums_of(file: Any) -> Iterator[Any]:
    yield from file.enum_types_by_name.values()
    for message in messages_of(file):
        yield from message.enum_types_by_name.values()


def test_a_file_lies_where_its_versioned_package_says(file: Any) -> None:
    assert file.name.rpartition("/")[0] == file.package.replace(".", "/")
    assert re.search(r"\.v[1-9]\d*$", file.package)
    assert LOWER_SNAKE.fullmatch(Path(file.name).stem)


def test_an_enum_begins_with_unspecified_and_its_values_carry_its_name(file: Any) -> None:
    for enum in enums_of(file):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        assert PASCAL.fullmatch(enum.name)
        assert (enum.values[0].name, enum.values[0].number) == (f"{prefix}UNSPECIFIED", 0)
        wrong = [value.name for value in enum.values if not value.name.startswith(prefix)]
        assert wrong + [value.name for value in enum.values if not UPPER_SNAKE.fullmatch(value.name)] == []


def test_messages_and_their_fields_are_written_as_usual(file: Any) -> None:
    for message in messages_of(file):
        assert PASCAL.fullmatch(message.name)
        oneofs = [each for each in message.oneofs if not each.name.startswith("_")]  # those are of `optional`
        names = [each.name for each in (*message.fields, *oneofs)]
        assert [name for name in names if not LOWER_SNAKE.fullmatch(name)] == []


def test_each_call_has_a_request_and_a_response_of_its_own(file: Any) -> None:
    for service in file.services_by_name.values():
        assert PASCAL.fullmatch(service.name)
        assert service.name.endswith("Service")
        for method in service.methods:
            assert method.input_type.name == f"{method.name}Request"
            assert method.output_type.name == f"{method.name}Response"
