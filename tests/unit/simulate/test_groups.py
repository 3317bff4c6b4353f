"""The source document's tables of groups and of overlapped stages, by the simulator itself."""

import pytest

from services.router.simulate.groups import speedup
from services.router.simulate.requests import REQUESTS
from services.router.simulate.settings import FleetSettings, PolicySettings, Pool
from services.router.simulate.simulation import simulate
from tests.unit.simulate.jobs import job

FCFS = PolicySettings("fcfs")


@pytest.mark.parametrize(
    ("cards", "minutes", "videos_an_hour"), [(1, 25.0, 19.2), (2, 13.2, 18.2), (4, 7.1, 16.9), (8, 3.9, 15.4)]
)
def test_groups_trade_throughput_for_latency(cards: int, minutes: float, videos_an_hour: float) -> None:
    single_s = 25 * 60.0
    group_s = single_s / speedup(cards)
    assert group_s / 60 == pytest.approx(minutes, abs=0.05)
    assert 3600 * (8 / cards) / group_s == pytest.approx(videos_an_hour, abs=0.06)
    # And by a simulation of 8 cards with always enough to do.
    jobs = [job(n, 0.0, single_s, "video") for n in range(80)]
    run = simulate(jobs, PolicySettings("pools"), FleetSettings(pools=(Pool("video", 8 // cards, cards),)))
    assert run.outcomes[0].latency_s / 60 == pytest.approx(minutes, abs=0.05)
    assert 80 / run.span_s * 3600 == pytest.approx(videos_an_hour, abs=0.06)


def test_no_group_of_a_size_that_nobody_measured() -> None:
    with pytest.raises(ValueError, match="known sizes are 1, 2, 4, 8"):
        Pool("video", 1, 3)


@pytest.mark.parametrize(
    ("serial_s", "overlapped_s", "gain"),
    [
        pytest.param(3.25, 2.95, 0.10, id="SDXL 1024²"),
        pytest.param(5.10, 4.80, 0.06, id="FLUX 1024²"),
        pytest.param(0.50, 0.35, 0.43, id="SDXL-Turbo, 4 steps"),
        pytest.param(175.8, 150.8, 0.17, id="Wan 5 s 720p on 8 cards"),
    ],
)
def test_hiding_the_decode_behind_the_next_denoise(serial_s: float, overlapped_s: float, gain: float) -> None:
    decode_s = serial_s - overlapped_s
    jobs = [job(n, 0.0, overlapped_s, decode_s=decode_s) for n in range(500)]
    serial = simulate(jobs, FCFS, FleetSettings(workers=1, decoders=0)).span_s
    overlapped = simulate(jobs, FCFS, FleetSettings(workers=1, decoders=1)).span_s
    assert serial / 500 == pytest.approx(serial_s)
    assert overlapped / 500 == pytest.approx(overlapped_s, rel=0.005)
    assert serial / overlapped - 1 == pytest.approx(gain, abs=0.006)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("sdxl-512", 0.2),
        ("sdxl-1024", 1.6),
        ("flux-1024", 5.6),
        ("flux-2048", 26.0),
        ("wan-480p", 665.4),
        ("wan-720p", 2959.9),
    ],
)
def test_named_requests_cost_what_the_source_says(name: str, seconds: float) -> None:
    assert REQUESTS[name].total_s == pytest.approx(seconds, abs=0.05)
