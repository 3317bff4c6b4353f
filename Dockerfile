# One target per service: router, encoder, denoiser, decoder.
#
#   docker build --target router -t triptych-router .
#
# Every layer of dependencies comes before any code, and the three stages share theirs: one copy of torch, not three.

# torch of this index instead of PyPI's, where given: PyTorch's index of CPU builds makes the images far smaller.
ARG TORCH_INDEX=""
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS python
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1

# What each role needs, as lists: they change less often than pyproject.toml does.
FROM python AS requirements
WORKDIR /requirements
COPY pyproject.toml deploy/images/requirements.py ./
RUN python requirements.py pyproject.toml >package.txt \
 && for extra in exchange router stage encoder denoiser decoder; do \
      python requirements.py pyproject.toml $extra >$extra.txt || exit 1; \
    done

# The code, as one wheel.
FROM python AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY deploy/nats/nats.conf deploy/nats/
COPY triptych triptych
COPY services services
RUN --mount=type=cache,target=/root/.cache/pip \
    pip wheel --quiet --no-deps --wheel-dir /wheels .

# What every service has: its user, gRPC, NATS; no torch.
FROM python AS service
RUN useradd --system --uid 10001 --create-home triptych
WORKDIR /home/triptych
COPY --from=requirements /requirements/package.txt /requirements/exchange.txt /requirements/
COPY constraints.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/package.txt -r /requirements/exchange.txt
ENV TRIPTYCH_CATALOG=/models/models.toml

# What the three stages have: torch and diffusers; the embedded model; a place for models of a hub.
FROM service AS stage
ARG TORCH_INDEX
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c /requirements/constraints.txt torch
COPY --from=requirements /requirements/stage.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/stage.txt
COPY --chmod=755 models /models
ENV HF_HOME=/var/cache/huggingface HF_HUB_DISABLE_TELEMETRY=1
RUN install -d -o triptych -g triptych /var/cache/huggingface

FROM service AS router
COPY --from=requirements /requirements/router.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/router.txt
COPY --chmod=755 models/models.toml /models/
COPY --from=wheel /wheels /wheels
RUN pip install --quiet --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check
USER triptych
# The router has no torch, and starts without it.
RUN ! python -c 'import torch' 2>/dev/null && python -P -m services.router --help >/dev/null
ENV TRIPTYCH_LISTEN=0.0.0.0:7460
EXPOSE 7460
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s CMD ["python", "-P", "-m", "triptych.rpc.health"]
ENTRYPOINT ["python", "-P", "-m", "services.router"]

FROM stage AS encoder
COPY --from=requirements /requirements/encoder.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/encoder.txt
COPY --from=wheel /wheels /wheels
RUN pip install --quiet --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check
USER triptych
RUN python -P -m services.encoder --help >/dev/null
ENV TRIPTYCH_LISTEN=0.0.0.0:7461
EXPOSE 7461
HEALTHCHECK --interval=15s --timeout=10s --start-period=600s CMD ["python", "-P", "-m", "triptych.rpc.health"]
ENTRYPOINT ["python", "-P", "-m", "services.encoder"]

FROM stage AS denoiser
COPY --from=requirements /requirements/denoiser.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/denoiser.txt
COPY --from=wheel /wheels /wheels
RUN pip install --quiet --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check
USER triptych
RUN python -P -m services.denoiser --help >/dev/null
ENV TRIPTYCH_LISTEN=0.0.0.0:7462
EXPOSE 7462
HEALTHCHECK --interval=15s --timeout=10s --start-period=600s CMD ["python", "-P", "-m", "triptych.rpc.health"]
ENTRYPOINT ["python", "-P", "-m", "services.denoiser"]

FROM stage AS decoder
COPY --from=requirements /requirements/decoder.txt /requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --quiet -c /requirements/constraints.txt -r /requirements/decoder.txt
COPY --from=wheel /wheels /wheels
RUN pip install --quiet --no-cache-dir --no-deps --no-index /wheels/*.whl && pip check
USER triptych
RUN python -P -m services.decoder --help >/dev/null
ENV TRIPTYCH_LISTEN=0.0.0.0:7463
EXPOSE 7463
HEALTHCHECK --interval=15s --timeout=10s --start-period=600s CMD ["python", "-P", "-m", "triptych.rpc.health"]
ENTRYPOINT ["python", "-P", "-m", "services.decoder"]
