"""Values between torch and the exchange: bits, layout and structure are kept."""

import pytest
import torch
from PIL import Image

from services.stage.tensors import from_bundle, is_carried, to_bundle

CPU = torch.device("cpu")
TENSORS = {
    "plain": torch.randn(2, 3),
    "channels last": torch.randn(1, 4, 8, 8).contiguous(memory_format=torch.channels_last),
    "transposed": torch.randn(4, 6).T,
    "sliced": torch.randn(3, 8)[:, ::2],
    "expanded": torch.randn(2, 3).expand(4, 2, 3),
    "offset": torch.randn(9)[4:],
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "bfloat16": torch.randn(5).to(torch.bfloat16),
    "float8": torch.randn(5).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "state": torch.Generator().get_state(),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS.keys())
def test_a_tensor_keeps_its_bits(tensor: torch.Tensor) -> None:
    value, kind = from_bundle(to_bundle({"x": (tensor, "denoiser_input_fields")}), CPU)["x"]
    assert kind == "denoiser_input_fields"
    assert value.dtype == tensor.dtype
    assert value.shape == tensor.shape
    assert bytes(value.contiguous().view(-1).view(torch.uint8)) == bytes(tensor.contiguous().view(-1).view(torch.uint8))


@pytest.mark.parametrize("name", ["plain", "channels last", "transposed"])
def test_a_dense_tensor_keeps_its_layout(name: str) -> None:
    value, _ = from_bundle(to_bundle({"x": (TENSORS[name], "")}), CPU)["x"]
    assert value.stride() == TENSORS[name].stride()


def test_lists_of_different_lengths_and_scalars_are_kept() -> None:
    values = {"embeds": [torch.ones(2), torch.ones(3)], "pair": (1, 2.5), "none": None, "text": "é", "flag": True}
    back = from_bundle(to_bundle({name: (value, "") for name, value in values.items()}), CPU)
    assert [len(each) for each in back["embeds"][0]] == [2, 3]
    assert {name: value for name, (value, _) in back.items() if name != "embeds"} == {
        name: value for name, value in values.items() if name != "embeds"
    }


def test_a_picture_is_not_carried() -> None:
    picture = Image.new("RGB", (2, 2))
    assert not is_carried([picture])
    with pytest.raises(TypeError, match="image: a Image cannot be carried"):
        to_bundle({"image": (picture, "")})
