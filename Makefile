# Everything runs in .venv, made on first use. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SITE = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
PROTOC = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I protos -I $(SITE)

.DEFAULT_GOAL := help
.PHONY: help setup demo up down test check lint protos bench bench-mixed chaos netfaults soak crowd short-jobs compose-test

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(VENV)/.ready ## make .venv with all that is needed

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Triptych needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup ## start the suite, make a picture (out/demo.png), stop
	$(BIN)/triptych demo

up: setup ## start the suite here and keep it in the foreground
	$(BIN)/triptych up

down: setup ## stop what `triptych up --detach` started
	$(BIN)/triptych down

test: setup ## run the tests
	$(BIN)/python -m pytest

check: setup ## lint, types, import rules, stale protos
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(MAKE) --no-print-directory protos
	@changed=$$(git status --porcelain -- triptych/v1); test -z "$$changed" || { echo "triptych/v1 was stale; commit it:"; echo "$$changed"; exit 1; }

lint: setup ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protos: setup ## generate triptych/v1 from protos/
	$(PROTOC) --python_out=. --mypy_out=. protos/triptych/v1/*.proto
	$(PROTOC) --grpc_python_out=. --mypy_grpc_out=. protos/triptych/v1/*_service.proto

bench: setup ## benchmarks of a few minutes each; print JSON
	for name in exchange overhead preemption cancel merge preview; do $(BIN)/python -m bench.$$name --json || exit 1; done

bench-mixed: setup ## short and long jobs under two policies, a quarter of an hour; print JSON
	$(BIN)/python -m bench.mixed_load --json

chaos: setup ## 20 min of killed, frozen and drained processes, leaders too: nothing accepted is lost (docs/testing.md)
	$(BIN)/python -m bench.chaos --json

netfaults: setup ## 10 min of cut, slow and lossy links between hosts of their own (root)
	$(BIN)/python -m bench.netfaults --json

soak: setup ## 30 min of steady work: no memory, thread, descriptor or stream grows
	$(BIN)/python -m bench.soak --json

crowd: setup ## 1,000 watchers and 200 submitters at once
	$(BIN)/python -m bench.crowd --json

short-jobs: setup ## 2,000 short jobs with cancels, amendments, failures and preemptions on one denoiser
	$(BIN)/python -m bench.short_jobs --json

compose-test: ## build the images, run the compose file, make a picture through it
	bash tests/compose/run.sh
