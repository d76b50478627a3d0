# `make run` and `make test` do all set-up themselves, on a machine with Python 3.11 and a compiler.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
CORES ?= all
# Test files run side by side, each file in one process: its tests share what they make.
PYTEST := $(BIN)/pytest -q --dist loadfile
SNAKEMAKE := $(BIN)/snakemake --profile workflow/profiles/local --cores $(CORES)
export PATH := $(abspath $(BIN)):$(PATH)
# Nothing here needs the hub; a recipe that does unsets this.
export HF_HUB_OFFLINE ?= 1

.PHONY: run test test-fast test-slow test-pipeline test-vllm test-slurm lint format docs clean

run: $(VENV)/ready ## the recipe nano, from raw forum threads to a table of marks
	$(SNAKEMAKE) nano

test: lint test-fast test-slow ## everything, the fast tests first

test-fast: $(VENV)/ready
	$(PYTEST) -n 2 -m "not pipeline and not vllm and not slurm"

# One process more than cores: the tests of SLURM, and those with dead servers, mostly wait.
test-slow: $(VENV)/ready
	$(PYTEST) -n 3 -m "pipeline or vllm or slurm"

test-pipeline: $(VENV)/ready
	$(PYTEST) -n 2 -m pipeline

test-vllm: $(VENV)/ready
	$(BIN)/pytest -q -m vllm

test-slurm: $(VENV)/ready ## needs a SLURM that answers `sinfo`; tests/pipeline/slurm.sh starts one on a single Debian machine
	$(BIN)/pytest -q -m slurm

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: $(VENV)/ready ## docs/kinds/ from the dataclasses
	$(BIN)/python -m proofmill.recipes.manual

$(VENV)/ready: envs/cpu.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu $(shell grep '^torch==' envs/cpu.txt)
	$(PIP) -r envs/cpu.txt
	$(PIP) --no-build-isolation -e .
	touch $@

clean: ## the environment; results are yours to delete
	rm -rf $(VENV)
