# The task runner. `make` alone lists the targets; `make up` and `make test` are the two that matter.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= $(shell sh scripts/jobs.sh)
MINUTES ?= 10
HOURS ?= 8
CASES ?= 100000
SEEDS ?= 1000
REQUESTS ?= 100000

# Caches stay in the repository folder, so nothing outside it is touched.
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export UV_PYTHON_DOWNLOADS := never
export PYTHON
# Whoever runs this may forbid Python to keep what it has compiled; the tests start a thousand of them.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest --dist worksteal
SEEDED := $(if $(SEED),-p randomly --randomly-seed=$(SEED))

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

up: venv ui ## start the embedded stack in ./.noetl (ARGS="--detach" and other options of `noetl up`)
	@$(BIN)/noetl up $(ARGS)

down: venv ## stop the embedded stack of ./.noetl
	@$(BIN)/noetl down

test: venv ## every gate and every test, in random order (SEED=n repeats an order, JOBS=n, STRICT=1 lets no test be skipped)
	@$(MAKE) --no-print-directory -j 2 $(if $(filter output-sync,$(.FEATURES)),-O) gates
	$(PYTEST) -n $(JOBS) $(SEEDED)
	$(if $(filter 1,$(NOETL_SKIP_UI_TESTS)),,$(PYTEST) -n $(JOBS) $(SEEDED) tests/ui)

gates: lint types imports docs-check client browser clocks podman ## what is checked without running the tests of Python

check: test cover bench-quick ## test, the coverage floors and the quick benchmarks

venv: $(READY) ## make .venv from requirements.lock (PYTHON=... picks the interpreter)

$(READY): requirements.lock pyproject.toml scripts/venv.sh
	@sh scripts/venv.sh $(VENV)
	@touch $@

ui: venv ## build the pages of the gateway and the browser client
	@sh scripts/ui.sh

client: venv ## the types and the tests of the browser client
	@sh scripts/ui.sh test

browser: venv ## see to it that there is a Chromium for the tests of the pages
	@sh scripts/ui.sh browser

clocks: ## what sets the clocks of single processes in tests, where it can be had
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || sh scripts/debian.sh libfaketime "with which tests set clocks" || true

podman: ## what runs containers in tests, where it can be had
	@{ command -v podman && command -v runc && command -v busybox; } >/dev/null 2>&1 || sh scripts/debian.sh "podman runc busybox-static" "with which tests run containers" || true

test-ui: client browser ## the tests of the browser client, and the pages in Chromium
	$(PYTEST) -n $(JOBS) $(SEEDED) tests/ui

fmt: venv ## rewrite the code as the formatter wants it
	$(BIN)/ruff check --fix --exit-zero --quiet
	$(BIN)/ruff format

lint: venv ## ruff, formatting, spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell

types: venv ## mypy, strict
	$(BIN)/mypy

imports: venv ## the import contracts: layers, purity, owners, cycles
	$(BIN)/lint-imports --no-logo --cache-dir .cache/imports

unit: venv ## the unit tests alone
	$(PYTEST) -n $(JOBS) $(SEEDED) tests/unit

test-reliability: venv clocks ## kill, cut, stop and fill every part while work runs, and count the effects (MINUTES=n, SEED=n, NAMES=...)
	$(BIN)/python -m tests.reliability $(NAMES) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak: venv ## hours of mixed work with kills, then rest: nothing may grow (HOURS=n, SEED=n)
	$(BIN)/python -m tests.soak --hours $(HOURS) $(if $(SEED),--seed $(SEED))

test-security: venv ## the security tests, and 100,000 requests made from the API document (REQUESTS=n, SEED=n)
	$(PYTEST) -n $(JOBS) $(SEEDED) tests/security
	$(BIN)/python -m tests.fuzz.api --requests $(REQUESTS) $(if $(SEED),--seed $(SEED))

cover: venv ## the tests with coverage: dsl 100 %, engine 99 %, everything 90 %
	$(PYTEST) -n $(JOBS) $(SEEDED) --cov --cov-report= --quiet
	$(BIN)/coverage report --include='src/noetl/dsl/*' --fail-under=100
	$(BIN)/coverage report --include='src/noetl/engine/*' --fail-under=99
	$(BIN)/coverage report --fail-under=90

docs: venv ## write the generated pages of docs/reference
	$(BIN)/python -m scripts.reference

docs-check: venv ## fail when a generated page is stale or a link is dead
	$(BIN)/python -m scripts.reference --check

bench: venv ## all benchmarks (ARGS="--long" takes hours of some; ARGS="--json FILE" keeps the records)
	$(BIN)/python -m bench all $(ARGS)

bench-compare: venv ## the same work on other engines, each in an environment of its own, in one table
	$(BIN)/python -m bench.peers $(ARGS)

profile: venv ## where the time of a step goes (NAME=chain, fanout or runs)
	$(BIN)/python -m bench profile $(or $(NAME),chain)

bench-quick: venv ## the benchmarks that take less than three minutes
	$(BIN)/python -m bench quick

fuzz: venv ## random text against loader, checker and templates (MINUTES=n, SEED=n)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

properties: venv ## the engine's properties at length (CASES=n, SEED=n)
	$(BIN)/python -m tests.unit.engine.properties --cases $(CASES) --seed $(or $(SEED),1)

agreement: venv ## list, detail, status, stream and replay agree on generated histories (CASES=n, SEED=n)
	$(BIN)/python -m tests.unit.server.agreement --cases $(if $(filter command line,$(origin CASES)),$(CASES),10000) --seed $(or $(SEED),1)

simulate: venv ## server, worker and store in virtual time with faults (SEEDS=n, SEED=n)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

sizes: venv ## the longest files and functions, and the counts that should only go down
	@$(BIN)/python scripts/sizes.py

lock: ## resolve pyproject.toml into requirements.lock (UPGRADE=1 takes newer versions)
	@test -x $(BIN)/uv || $(MAKE) venv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --no-annotate \
	  --no-emit-index-url --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements.lock

lock-check: venv ## fail when requirements.lock does not fit pyproject.toml (offline)
	$(PYTEST) -q tests/gates/test_lock.py

changelog: venv ## show what the next release says, from changes/
	$(BIN)/towncrier build --draft

clean: ## remove everything that make made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* build dist ui/node_modules src/noetl/gateway/static
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help up down test gates ui client browser clocks podman test-ui test-reliability soak test-security bench-compare profile check venv fmt lint types imports unit cover docs docs-check bench bench-quick fuzz \
  properties agreement simulate sizes lock lock-check changelog clean
