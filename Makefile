# `make run` and `make test` do all set-up themselves, on a machine with Python 3.11, 3.12 or 3.13 and a compiler.
PYTHONS := python3.11 python3.12 python3.13
# The first that starts and can make environments; 3.11 before the others because all figures are measured with it.
PYTHON ?= $(shell for python in $(PYTHONS); do $$python -c "import ensurepip, venv" 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
# What is installed: envs/cpu.txt, or envs/gpu.txt for a machine with CUDA (`make gpu`).
LOCK ?= envs/cpu.txt
BIN := $(VENV)/bin
# The environment of what keeps the locks: uv, pip-audit, a pip that reads licences.
TOOLS := $(VENV)/tools
PIP_FLAGS := --quiet --disable-pip-version-check --no-deps --no-build-isolation
PIP := $(BIN)/python -m pip install $(PIP_FLAGS)
CORES ?= all
# Test files run side by side, each file in one process: its tests share what they make.
PYTEST := $(BIN)/pytest -q --dist loadfile
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
export PATH := $(abspath $(BIN)):$(PATH)
# Nothing here needs the hub; a recipe that does unsets this.
export HF_HUB_OFFLINE ?= 1

.PHONY: help run smol gpu test test-all test-fast test-slow test-long test-pipeline test-vllm test-slurm test-browser lint format docs lock audit clean

help: ## what can be made
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/ready ## the recipe nano, from raw forum threads to a table of marks
	$(SNAKEMAKE) nano

VLLM := $(foreach kind,responses labels grades,$(kind):engine=vllm)

smol: $(VENV)/ready ## a real language model on GSM8K, under 20 minutes; LONG=1 takes about an hour
	HF_HUB_OFFLINE=0 $(BIN)/proofmill fetch smol
	$(SNAKEMAKE) smol --set-resources $(VLLM) $(if $(LONG),--configfile workflow/smol-long.yaml)

gpu: ## installs envs/gpu.txt, for a machine with CUDA; `make run LOCK=envs/gpu.txt` then runs with it
	$(MAKE) $(VENV)/ready LOCK=envs/gpu.txt

test: lint test-fast test-slow ## what CI runs, the fast tests first

test-all: test test-long ## everything

test-fast: $(VENV)/ready $(TOOLS)/ready ## the tests without whole runs, vLLM, SLURM and a browser
	$(PYTEST) -n 2 -m "not long and not pipeline and not vllm and not slurm and not browser"

# One process more than cores: the tests of SLURM, and those with dead servers, mostly wait. Files in the order of
# tests/conftest.py, the longest first.
test-slow: $(VENV)/ready ## those with them
	$(PYTEST) -n 3 --no-loadscope-reorder -m "not long and (pipeline or vllm or slurm or browser)"

test-long: $(VENV)/ready ## those marked `long`, which `make test` leaves out
	$(PYTEST) -n 2 -m long

test-pipeline: $(VENV)/ready ## whole runs at reduced sizes
	$(PYTEST) -n 2 -m pipeline

test-vllm: $(VENV)/ready ## a tiny model, served by vLLM
	$(BIN)/pytest -q -m vllm

test-slurm: $(VENV)/ready ## needs a SLURM that answers `sinfo`; tests/pipeline/slurm.sh starts one on a single Debian machine
	$(BIN)/pytest -q -m slurm

test-browser: $(VENV)/ready ## needs Chromium; tests/viewer/browser.sh installs it on a Debian machine
	$(BIN)/pytest -q -m browser

lint: $(VENV)/ready ## style, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy

format: $(VENV)/ready ## mends style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: $(VENV)/ready ## docs/kinds/ and the schema of configuration files, from the dataclasses
	$(BIN)/python -m proofmill.recipes.manual

lock: $(TOOLS)/ready ## envs/ from pyproject.toml, with the versions it has; UPGRADE=--upgrade takes the newest
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) pyproject.toml --extra cpu --group dev \
	  --excludes envs/cpu-without.txt --output-file envs/cpu.txt >/dev/null
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) pyproject.toml --extra gpu --group dev --output-file envs/gpu.txt >/dev/null
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) --group tools --output-file envs/tools.txt >/dev/null
	$(TOOLS)/bin/python envs/licences.py

audit: $(TOOLS)/ready ## known vulnerabilities of what is pinned; AUDIT=--where-at-hand is content without advisories
	$(TOOLS)/bin/python envs/audit.py $(AUDIT) envs/cpu.txt envs/gpu.txt envs/tools.txt

define NEEDS_PYTHON
@$(if $(PYTHON),$(PYTHON),false) -c "import ensurepip, venv" 2>/dev/null || { \
  echo "make: no Python that can make environments; expected one of $(or $(PYTHON),$(PYTHONS)), with its module venv." >&2; \
  echo "Install one, for example by 'apt install python3.11 python3.11-venv', 'pyenv install 3.11' (then" >&2; \
  echo "'make PYTHON=$$HOME/.pyenv/versions/3.11.x/bin/python') or 'uv python install 3.11'." >&2; exit 1; }
endef

# First what is needed to build the rest, and torch: its CPU build is on an index that would be asked for all packages.
$(VENV)/ready: $(LOCK) pyproject.toml
	$(NEEDS_PYTHON)
	@echo "Installing what $(LOCK) pins into $(VENV): some GB, a few minutes in which pip says nothing" >&2
	$(PYTHON) -m venv $(VENV)
	sed -nE '/^(setuptools|torch)==/,/[^\]$$/p' $(LOCK) >$(VENV)/first.txt
	$(PIP) --require-hashes --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu -r $(VENV)/first.txt
	$(PIP) --require-hashes -r $(LOCK)
	$(PIP) -e .
	touch $@

$(TOOLS)/ready: envs/tools.txt
	$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install $(PIP_FLAGS) --require-hashes -r envs/tools.txt
	touch $@

clean: ## the environment; results are yours to delete
	rm -rf $(VENV)
