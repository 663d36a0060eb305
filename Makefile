# `make demo` and `make test` are all that a newcomer needs; each makes the environment first.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo ui test test-slow chaos lint format bench clean

BIN := .venv/bin
LOG := .venv/install.log
# The interpreters to make .venv from, in order; `make env PYTHON=/opt/python/bin/python3` names one.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3.11 python3)

# What a shell may carry that would lead Python or pip out of .venv. How pip finds packages
# (PIP_INDEX_URL, PIP_FIND_LINKS, certificates, proxies) stays as it is.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
unexport PIP_REQUIRE_VIRTUALENV PIP_NO_DEPS PIP_DRY_RUN PIP_PYTHON
export PIP_USER := 0
# Nobody is told that we ran: Prefect and MLflow both heed these.
export DO_NOT_TRACK := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: .venv/.complete  ## make .venv with every package pinned; at once when it is there

.venv/.complete: pyproject.toml constraints.txt
	@found=; if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    for candidate in $(CANDIDATES); do \
	        if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	            >/dev/null 2>&1; then found="$$candidate"; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "make env: none of '$(CANDIDATES)' is a Python 3.11 or newer with venv and" >&2; \
	        echo "ensurepip (Debian: python3-venv); name one: make env PYTHON=/path/to/python" >&2; \
	        exit 1; \
	    fi; \
	    "$$found" -m venv --clear .venv; \
	fi
	@echo "installing the packages of constraints.txt into .venv (minutes, the first time) ..."
	@{ $(BIN)/python -m pip install -c constraints.txt pip setuptools && \
	   $(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.[dev]'; \
	 } >$(LOG) 2>&1 || { tail -n 20 $(LOG) >&2; echo "make env: pip failed; see $(LOG)" >&2; exit 1; }
	@touch $@

demo: env  ## train five networks on real digits, stop the four that go wrong, say why
	@$(BIN)/vinedresser train examples/digits/demo.toml

ui: env  ## open MLflow on what the demo recorded
	@$(BIN)/vinedresser ui runs/demo

test: lint  ## all checks, then the tests that take minutes at most
	$(BIN)/pytest -n 2 -m "not slow and not chaos"

test-slow: env  ## the tests that take longer
	$(BIN)/pytest -n 2 -m slow

chaos: env  ## kill whatever sweeps and their servers consist of, fifty times (KILLS=…)
	CHAOS_KILLS=$(or $(KILLS),50) $(BIN)/pytest -n 0 -m chaos tests/flows/test_chaos.py

lint: env  ## style, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: env  ## put the code into the one format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: env  ## print the measurements beside their budgets
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.long_run
	$(BIN)/python -m benchmarks.s3
	$(BIN)/python -m benchmarks.reductions
	$(BIN)/python -m benchmarks.overhead --model mlp
	$(BIN)/python -m benchmarks.overhead --model resnet
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.keras_overhead
	$(BIN)/python -m benchmarks.xgboost_overhead
	$(BIN)/python -m benchmarks.reaction
	$(BIN)/python -m benchmarks.rules
	$(BIN)/python -m benchmarks.faults
	$(BIN)/python -m benchmarks.sweep
	$(BIN)/python -m benchmarks.orchestration

clean:  ## remove what can be made again, .venv too; runs/ stays
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
