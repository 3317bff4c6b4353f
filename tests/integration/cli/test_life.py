"""A suite's life: up, down, the death of each process and of the supervisor, and the demo."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tests.integration.cli import command
from tests.small_disk import small_disk
from tests.suite import CATALOG, RunningSuite
from triptych.client import Client
from triptych.client.local_suite import LocalSuite, lock_owner
from triptych.v1 import job_pb2

PROMPT = "a small blue star on the left on a black background"
UP = ("up", "--listen", "127.0.0.1:0", "--device", "cpu", "--threads", "1", "--drain", "2")


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a suite that the tests of this module start and end, one after the other."""
    folder = tmp_path_factory.mktemp("life") / "state"
    yield folder
    command.run("down", state_dir=folder)


@pytest.fixture
def detached(state_dir: Path) -> LocalSuite:
    """The suite of that folder, running in the background."""
    if lock_owner(state_dir) is None:
        started = command.run(*UP, "--detach", "--json", state_dir=state_dir)
        assert started.returncode == 0, started.stdout + started.stderr
    suite = LocalSuite.read(state_dir)
    assert suite is not None
    return suite


def processes(suite: LocalSuite) -> list[psutil.Process]:
    """The supervisor and everything below it."""
    supervisor = psutil.Process(suite.pid)
    return [supervisor, *supervisor.children(recursive=True)]


def test_a_detached_suite_is_found_and_makes_a_picture(detached: LocalSuite, state_dir: Path, tmp_path: Path) -> None:
    assert set(detached.processes) == {"nats", "router", "encoder-0", "denoiser-0", "decoder-0"}
    assert {process.pid for process in processes(detached)} == {detached.pid, *detached.processes.values()}
    made = command.run(
        *("generate", PROMPT, "--steps", "2", "-o", str(tmp_path / "x.png"), "--json"), state_dir=state_dir
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["files"] == [str(tmp_path / "x.png")]


def test_a_second_suite_in_the_same_folder_is_refused(detached: LocalSuite, state_dir: Path) -> None:
    for second in (command.run(*UP, state_dir=state_dir), command.run(*UP, "--detach", state_dir=state_dir)):
        assert second.returncode == 2
        assert f"its router is at {detached.address}; stop it: triptych down" in second.stderr
    assert LocalSuite.read(state_dir) == detached


def test_no_process_outlives_a_killed_supervisor(detached: LocalSuite, state_dir: Path) -> None:
    everything = processes(detached)
    everything[0].kill()
    _, alive = psutil.wait_procs(everything, timeout=5)
    assert not alive
    assert LocalSuite.read(state_dir) is None


def test_ctrl_c_drains_and_what_was_accepted_is_still_there(state_dir: Path) -> None:
    with command.start(*UP, state_dir=state_dir) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "router at" in ready
        suite = LocalSuite.read(state_dir)
        assert suite is not None
        everything = processes(suite)[1:]
        listed = command.run("jobs", "--json", state_dir=state_dir)
        assert [job["spec"]["prompt"] for job in json.loads(listed.stdout)] == [PROMPT]
        command.press_ctrl_c(process)
        _, told = process.communicate()
    assert process.returncode == 0, told
    assert "stopping" in told
    _, alive = psutil.wait_procs(everything, timeout=0)
    assert not alive
    assert "worker_stopped" in (state_dir / "logs" / "denoiser-0.log").read_text().splitlines()[-1]


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    with command.start(*UP, state_dir=tmp_path) as process:
        command.read_until(process, ["router       ready"])
        children = psutil.Process(process.pid).children(recursive=True)
        command.press_ctrl_c(process)
        process.communicate()
    assert process.returncode == 0
    assert len(children) == 5
    _, alive = psutil.wait_procs(children, timeout=0)
    assert not alive


def test_a_disk_that_is_too_small_is_warned_of_and_a_full_one_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 96) as disk:
        state_dir = disk.path / "state"
        started = command.run(*UP, "--detach", state_dir=state_dir)
        command.run("down", state_dir=state_dir)
        disk.fill()
        again = command.run(*UP, state_dir=state_dir)
    assert started.returncode == 0, started.stderr
    assert "warning: the stores may take 15.1 GiB, and the disk of" in started.stderr
    assert again.returncode == 1
    assert f"the disk of {state_dir / 'nats'} is full" in again.stderr


def test_an_address_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = command.run("up", "--listen", address, state_dir=tmp_path)
    assert ended.returncode == 1
    assert f"cannot listen on {address}" in ended.stderr


def test_what_cannot_work_is_told_before_anything_starts(tmp_path: Path) -> None:
    catalog = tmp_path / "models.toml"
    catalog.write_text('[models.a]\ncheckpoint = "nowhere"\n')
    for arguments, why in (
        (("--catalog", str(catalog)), f"models.a.checkpoint: there is no folder {tmp_path / 'nowhere'}"),
        (("--listen", "127.0.0.1:99999"), "listen: '127.0.0.1:99999' is not HOST:PORT"),
    ):
        ended = command.run("up", *arguments, state_dir=tmp_path / "state")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.splitlines() == [f"triptych: {why}"]
    assert not (tmp_path / "state").exists()


def catalog_of(folder: Path, *models: str) -> Path:
    """The embedded model, if it is named, and others whose checkpoint is an empty folder."""
    (folder / "empty").mkdir()
    places = {name: CATALOG.parent / "shapes" / "checkpoint" if name == "shapes" else "empty" for name in models}
    file = folder / "models.toml"
    file.write_text("".join(f'[models.{name}]\ncheckpoint = "{place}"\n' for name, place in places.items()))
    return file


def test_a_model_that_cannot_be_served_is_warned_of_and_shown(tmp_path: Path) -> None:
    why = "empty has neither modular_model_index.json nor model_index.json"
    catalog = catalog_of(tmp_path, "bad", "shapes")
    up = command.run(*UP, "--detach", "--catalog", str(catalog), state_dir=tmp_path / "state")
    try:
        assert up.returncode == 0, up.stderr
        assert f"warning: bad is not served: {why}" in up.stderr
        for shown in (command.run(what, state_dir=tmp_path / "state") for what in ("models", "fleet")):
            assert f"bad is not served by decoder-0, denoiser-0, encoder-0: {why}" in shown.stdout
        refused = command.run("submit", PROMPT, "--model", "bad", state_dir=tmp_path / "state")
        assert refused.returncode == 4
        assert "refused (MODEL_UNAVAILABLE): The model bad cannot be served; no worker can" in refused.stderr
        assert why in refused.stderr
    finally:
        command.run("down", state_dir=tmp_path / "state")


def test_a_suite_that_can_serve_no_model_is_not_started(tmp_path: Path) -> None:
    ended = command.run(*UP, "--catalog", str(catalog_of(tmp_path, "bad")), state_dir=tmp_path / "state")
    assert ended.returncode == 1
    assert "-0 can serve none of the models:\n  bad: empty has neither" in ended.stderr


@pytest.mark.parametrize("names", [("nats",), ("router",), ("encoder-0", "denoiser-0", "decoder-0")])
async def test_what_is_killed_comes_back_and_jobs_go_on(suite: RunningSuite, names: tuple[str, ...]) -> None:
    before = {name: suite.pid(name) for name in names}
    doomed = list(names)
    async with Client(suite.address) as client:
        spec = job_pb2.JobSpec(model="shapes", prompt=PROMPT, step_count=20, seed=1)
        async for event in client.watch((await client.submit(spec)).job_id):
            while doomed and event.WhichOneof("event") == "progress":
                suite.kill(doomed.pop())
        assert event.WhichOneof("event") == "succeeded"
    assert not doomed
    suite.wait_ready()
    assert all(suite.pid(name) not in (None, before[name]) for name in names)


def test_what_is_killed_without_restarts_stays_down(suite: RunningSuite) -> None:
    address = suite.address
    with suite.no_restarts():
        suite.kill("router")
        assert suite.pid("router") is None
        suite.start("router")
    suite.wait_ready()
    assert suite.address == address


def test_a_stage_scales_up_and_down(suite: RunningSuite) -> None:
    suite.scale("decoder", 2)
    assert suite.pid("decoder-1") is not None
    suite.scale("decoder", 1)
    assert "decoder-1" not in suite.names


def test_the_demo_makes_a_picture_and_leaves_nothing(tmp_path: Path) -> None:
    with command.start("demo", "--json", "-o", str(tmp_path / "demo.png"), state_dir=tmp_path) as demo:
        line = _service_ready(demo)
        children = psutil.Process(demo.pid).children(recursive=True)
        out, told = demo.communicate()
    assert demo.returncode == 0, told
    assert children, line
    _, alive = psutil.wait_procs(children, timeout=0)
    assert not alive
    result = json.loads(out.splitlines()[-1])
    assert result["total_s"] > result["start_s"] > 0
    assert min(result[f"{stage}_s"] for stage in ("encode", "denoise", "decode")) > 0
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size == (96, 96)


def _service_ready(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told.get("service", "").startswith("decoder") and told["state"] == "ready":
            return line
    raise AssertionError("the demo ended before its decoder was ready")
