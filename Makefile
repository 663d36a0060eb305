# `make demo` and `make test` are all you need to start; each creates the environment first.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo drift-demo data-demo prune-demo ui test test-quick test-all test-quick-and-thorough \
        test-thorough test-slow test-random test-gpu test-libraries test-pythons chaos week mutate lint \
        corpus-check format docs wheel release bench clean

VENV := .venv
BIN := $(VENV)/bin
LOG := $(VENV)/install.log
# Tests of one file share fixtures, so one worker runs them all.
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
WORKERS = 2
# Interpreters to create .venv with, in order; `make env PYTHON=/opt/python/bin/python3` sets one.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3.11 python3)

# What `make test-libraries` installs; timm, too, is tested where it and torchvision are installed.
LIBRARIES := transformers accelerate sentence-transformers datasets 'jsonargparse[signatures]'

# The versions of Python that `make test-pythons` tests besides that of .venv.
PYTHONS ?= 3.12 3.13

# Variables that would lead Python or pip out of .venv. Those that say where pip finds packages
# (PIP_INDEX_URL, PIP_FIND_LINKS, certificates, proxies) are kept.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
unexport PIP_REQUIRE_VIRTUALENV PIP_NO_DEPS PIP_DRY_RUN PIP_PYTHON
export PIP_USER := 0
# Often set in containers: every process that tests start would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE
# No telemetry: Prefect and MLflow read these.
export DO_NOT_TRACK := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.complete  ## create .venv with pinned packages, unless it is up to date

$(VENV)/.complete: pyproject.toml constraints.txt
	@found=; if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    for candidate in $(CANDIDATES); do \
	        if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	            >/dev/null 2>&1; then found="$$candidate"; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "make env: no Python 3.11 or newer with venv and ensurepip (Debian:" >&2; \
	        echo "python3-venv) among '$(CANDIDATES)'; set one: make env PYTHON=/path/to/python" >&2; \
	        exit 1; \
	    fi; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	@echo "installing the packages of constraints.txt into $(VENV) (takes minutes the first time) ..."
	@{ $(BIN)/python -m pip install -c constraints.txt pip setuptools && \
	   $(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.[dev]'; \
	 } >$(LOG) 2>&1 || { tail -n 20 $(LOG) >&2; echo "make env: pip failed; see $(LOG)" >&2; exit 1; }
	@touch $@

demo: env  ## train five networks on real digits, stop the four that fail, say why
	@$(BIN)/vinedresser train examples/digits/demo.toml

drift-demo: env  ## serve a classifier whose images begin to turn: alarm, saliency maps, MLflow
	@$(BIN)/python -m examples.drift.demo

data-demo: env  ## digits on S3: a rule boosts a rare class, a kill costs no record, a damaged one is named
	@$(BIN)/python -m examples.s3_digits.demo

prune-demo: env  ## prune a ResNet on Fashion-MNIST in six rounds, and say which one is the best
	@$(BIN)/vinedresser prune examples/pruning/prune.toml

ui: env  ## open the demo's runs in MLflow
	@$(BIN)/vinedresser ui runs/demo

test: env  ## lint and the quick tests, side by side (minutes)
	@$(MAKE) --no-print-directory -j 2 lint test-quick

test-quick: env  ## the quick tests alone
	$(PYTEST) -m "not thorough and not slow and not chaos"

test-all: env  ## lint, the quick and the thorough tests: what has to pass before a change lands
	@$(MAKE) --no-print-directory -j 2 lint test-quick-and-thorough

# One session: collecting the tests and loading the frameworks takes half a minute.
# A third worker computes while the tests of others wait for processes and servers.
test-quick-and-thorough: WORKERS = 3
test-quick-and-thorough: env
	$(PYTEST) -m "not slow and not chaos"

test-thorough: env  ## the tests that `make test` leaves out
	$(PYTEST) -m "thorough and not slow and not chaos"

test-slow: env  ## tests that take minutes each
	$(PYTEST) -m "slow and not chaos"

test-random: env  ## property tests with many random examples
	$(PYTEST) -m hypothesis --hypothesis-profile=random --timeout 3600

mutate: env  ## change the store, the schedule, the study and the engine; tests must notice
	$(BIN)/mutmut run --max-children 2
	$(BIN)/python -m benchmarks.mutants

test-gpu: env  ## tests that need a CUDA device
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	    $(BIN)/pytest -n 0 -m gpu; \
	else \
	    echo "no CUDA device: the GPU tests were not run"; \
	fi

test-libraries:  ## unchanged scripts with transformers, accelerate and others, in an environment of their own
	$(MAKE) VENV=.venv-libraries env
	.venv-libraries/bin/python -m pip install -q -c constraints.txt $(LIBRARIES)
	.venv-libraries/bin/pytest -n 2 -m libraries tests/libraries

test-pythons:  ## the quick tests with Python 3.12 and 3.13, where they are found (PYTHONS=...)
	@for version in $(PYTHONS); do \
	    found=; for candidate in python$$version $(HOME)/.pyenv/versions/$$version.*/bin/python; do \
	        if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then found="$$candidate"; fi; \
	    done; \
	    if [ -z "$$found" ]; then echo "no Python $$version: its tests were not run"; continue; fi; \
	    $(MAKE) VENV=.venv-$$version PYTHON="$$found" test-quick || exit 1; \
	done

chaos: env  ## kill and stop processes of sweeps and of jobs of ranks, remove and copy runs (KILLS=..., JOBS=..., RESTARTS=...)
	CHAOS_KILLS=$(or $(KILLS),80) CHAOS_JOBS=$(or $(JOBS),24) CHAOS_RESTARTS=$(or $(RESTARTS),8) $(BIN)/pytest -n 0 -m chaos \
	    tests/flows/chaos/test_rank_jobs.py tests/flows/chaos/test_rank_restarts.py tests/flows/chaos/test_chaos.py tests/flows/chaos/test_lost_servers.py

week: env  ## a week of a team in minutes: kills, a full disk, an old password, an upgrade (WEEK_RUNS=...)
	$(BIN)/pytest -n 0 -m chaos tests/flows/chaos/test_week.py

lint: env  ## check style, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

corpus-check: env  ## check the trainings of corpus/: style, types, and its manifest
	$(BIN)/ruff check corpus
	$(BIN)/ruff format --check corpus
	$(BIN)/mypy corpus
	$(BIN)/python -m corpus.manifest --check

format: env  ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: env  ## build the site of the documents in build/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Old files of build/lib would get into the wheel.
wheel: env  ## build the wheel in dist, install it into an empty environment, and try it there
	rm -rf build/bdist.* build/lib build/wheel dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd build/wheel && bin/vinedresser --help >/dev/null && bin/vinedresser init sweep

# With the versions of this release's tests. Nothing is uploaded.
RELEASE_TOOLS := cyclonedx-bom==7.5.0 twine==7.0.0

release: wheel  ## check the wheel as PyPI does; write its SBOM and checksums, signed if KEY=... is a key of ssh
	@test -z "$$(git status --porcelain)" || { echo "make release: there are uncommitted changes" >&2; exit 1; }
	$(BIN)/python -m venv build/release
	build/release/bin/python -m pip install --quiet $(RELEASE_TOOLS)
	build/release/bin/twine check --strict dist/*.whl
	build/release/bin/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --output-reproducible \
	    --output-format JSON --output-file dist/sbom.cdx.json
	cd dist && sha256sum *.whl sbom.cdx.json >SHA256SUMS
	@if [ -n "$(KEY)" ]; then ssh-keygen -Y sign -f "$(KEY)" -n file dist/SHA256SUMS; \
	else echo "not signed: no KEY=..."; fi

bench: env  ## run the benchmarks and print them beside their budgets
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.long_run
	$(BIN)/python -m benchmarks.s3
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.reductions
	$(BIN)/python -m benchmarks.overhead --model mlp
	$(BIN)/python -m benchmarks.overhead --model resnet
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.keras_overhead
	$(BIN)/python -m benchmarks.xgboost_overhead
	$(BIN)/python -m benchmarks.reaction
	$(BIN)/python -m benchmarks.comparison
	$(BIN)/python -m benchmarks.rules
	$(BIN)/python -m benchmarks.budget
	$(BIN)/python -m benchmarks.faults
	$(BIN)/python -m benchmarks.world
	$(BIN)/python -m benchmarks.sweep
	$(BIN)/python -m benchmarks.orchestration
	$(BIN)/python -m benchmarks.pruning
	$(BIN)/python -m benchmarks.fullgrad
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.drift
	$(BIN)/python -m benchmarks.public
	$(BIN)/python -m benchmarks.preflight

clean:  ## remove generated files and .venv; keep runs/
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
