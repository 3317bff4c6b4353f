"""Calls of real networks as one: what is equal, what is each sample's own or shared, and the parts that come out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from services.denoiser.forward_call import ForwardCall, Unmergeable, close, together
from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from tests.unit.denoiser.denoising_bench import DenoisingBench, Watching, run, spec

SHARED = {"sdxl": 0, "flux": 2, "sd3": 0, "wan": 0}


async def calls_of(bench: DenoisingBench, seeds: tuple[int, ...]) -> list[list[ForwardCall]]:
    """The calls of whole jobs of these seeds, as their loops make them."""
    torch.set_num_threads(1)
    thread = DeviceThread("device")
    thread.start()
    made: list[ForwardCall] = []
    for network in bench.model.block(DENOISE).networks.values():
        network.forward = _noting(network.forward, made)
    jobs = []
    for seed in seeds:
        await run(thread, bench.work(spec(bench.name, seed, 3), Watching()))
        jobs.append(list(made))
        made.clear()
    thread.close()
    return jobs


def _noting(stock: Callable[..., Any], made: list[ForwardCall]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        made.append(ForwardCall("network", stock, args, kwargs))
        return stock(*args, **kwargs)

    return forward


@pytest.mark.parametrize("name", SHARED)
async def test_calls_of_different_steps_and_prompts_come_out_as_they_do_alone(
    tiny_checkpoints: Path, name: str
) -> None:
    one, two = await calls_of(DenoisingBench(tiny_checkpoints, name), (1, 2))
    # The last step of one, the first of the other: other timesteps; with guidance, the conditional half and the other.
    calls = [one[-1], two[0], two[-1]]
    assert one[-1].merges_with(two[0])
    assert len(one[0].shared) == SHARED[name]
    merged = together(calls)
    alone = [call.alone() for call in calls]
    assert close(merged, alone)
    # It could have come out otherwise.
    assert not close(merged[0], alone[1])


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> ForwardCall:
    return ForwardCall("network", function, args, kwargs)


def _double(x: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
    return x * 2


X = torch.ones(1, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_call(_double, X), _call(_double, torch.ones(1, 4))),
        (_call(_double, X), _call(_double, X.double())),
        (_call(_double, X), _call(_double, X, None)),
        (_call(_double, X, scale=1.0), _call(_double, X, scale=2.0)),
        (_call(_double, X, flag=1), _call(_double, X, flag=True)),
        (_call(_double, X, ids=torch.arange(5)), _call(_double, X, ids=torch.arange(5) + 1)),
        (_call(_double, X, other=object()), _call(_double, X, other=object())),
        (_call(_double, torch.tensor(1.0)), _call(_double, torch.tensor(1.0))),
        (_call(_double, X), ForwardCall("another", _double, (X,), {})),
    ],
)
def test_calls_that_are_not_equal_do_not_merge(one: ForwardCall, other: ForwardCall) -> None:
    assert not one.merges_with(other)


def test_numbers_become_one_for_each_sample_and_shared_ids_are_passed_once() -> None:
    def network(x: torch.Tensor, t: torch.Tensor, ids: torch.Tensor) -> dict[str, Any]:
        assert ids.shape == (5,)
        return {"sample": x + t[:, None] + ids.sum(), "kept": None}

    calls = [_call(network, torch.zeros(2, 3), torch.tensor(step), torch.arange(5)) for step in (1.0, 2.0)]
    assert calls[0].merges_with(calls[1])
    results = together(calls)
    assert [result["sample"].tolist() for result in results] == [[[11.0] * 3] * 2, [[12.0] * 3] * 2]


@pytest.mark.parametrize(
    "network",
    [
        lambda x, ids: x.sum(),
        lambda x, ids: x[:1],
        lambda x, ids: [object()],
        lambda x, ids: ids.add_(1) * 0 + x[..., :1],
    ],
    ids=["no batch", "one sample", "unknown", "in place"],
)
def test_networks_that_do_not_take_several_are_told(network: Callable[..., Any]) -> None:
    calls = [_call(network, torch.ones(1, 3), torch.arange(5)) for _ in range(2)]
    with pytest.raises(Unmergeable):
        together(calls)


def test_rounding_is_close_and_another_sample_is_not() -> None:
    sample = torch.randn(1, 64)
    assert close((sample,), (sample + 1e-6,))
    assert not close((sample,), (sample + 0.01,))
    assert not close((sample,), (sample.double(),))
    assert not close((sample, None), (sample, 1))
    broken = torch.where(sample > 1, torch.nan, sample)
    assert close(broken, broken.clone())
    assert not close(broken, sample)
