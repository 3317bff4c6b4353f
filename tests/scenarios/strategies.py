"""What Hypothesis draws for a scheduler: models, settings, jobs."""

from hypothesis import strategies as st

from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.job import JobRequest, StageSeconds

MODELS = ("m", "n")

pools = st.sampled_from(
    [
        SchedulerConfig().pools,
        (PoolConfig(name="all", max_backlog_s=20.0, max_running=1),),
        (
            PoolConfig(name="short", max_estimate_s=5.0, max_backlog_s=10.0, count=1, borrow="idle"),
            PoolConfig(name="n", models=("n",), max_job_s=30.0, borrow="preemptible", max_running=1),
            PoolConfig(name="rest", labels={"big": "yes"}),
        ),
        (PoolConfig(name="m", models=("m",), borrow="idle"), PoolConfig(name="n", borrow="idle")),
    ]
)
configs = st.builds(
    SchedulerConfig,
    policy=st.sampled_from(["stretch", "stretch", "fcfs", "sjf", "pools"]),
    pools=pools,
    max_queued_jobs=st.sampled_from([6, 50]),
    encode_ahead_jobs=st.integers(1, 3),
    max_setbacks=st.sampled_from([1, 50]),
    tenant_weights=st.sampled_from([{}, {"ann": 3.0}]),
    move_cost_s=st.sampled_from([0.1, 15.0]),
)
seconds = st.sampled_from([1.0, 4.0, 0.5, 7.0, 0.0, 25.0, 100.0])
requests = st.builds(
    JobRequest,
    job_id=st.just(""),
    tenant=st.sampled_from(["ann", "bob"]),
    model=st.sampled_from(MODELS),
    priority_class=st.sampled_from(["standard", "batch"]),
    seconds=st.builds(StageSeconds, seconds, seconds, seconds),
    output_count=st.integers(1, 3),
    deadline_s=st.sampled_from([None, None, None, 5.0, 100.0]),
    merge_key=st.sampled_from(["", "a", "b"]),
)
