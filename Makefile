# `make run` and `make test` set up everything, on a machine with Python 3.11, 3.12 or 3.13 and a C compiler.
PYTHONS := python3.11 python3.12 python3.13
# The first that starts and can create environments. 3.11 comes first because all figures were measured with it.
PYTHON ?= $(shell for python in $(PYTHONS); do $$python -c "import ensurepip, venv" 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
# The lock file to install: envs/cpu.txt, or envs/gpu.txt for a machine with CUDA (`make install-gpu`).
LOCK ?= envs/cpu.txt
BIN := $(VENV)/bin
# The environment of the tools for lock files: uv, pip-audit, and a pip that reads licenses.
TOOLS := $(VENV)/tools
# The environment that builds the web site.
SITE ?= $(VENV)/site
PIP_FLAGS := --quiet --disable-pip-version-check --no-deps --no-build-isolation
PIP := $(BIN)/python -m pip install $(PIP_FLAGS)
CORES ?= all
SMOL := $(if $(LONG),smol-seeds smol-gsm8k,smol)
# Test files run concurrently, each in one process, because its tests share fixtures. Those with the largest budgets
# (tests/budgets.csv) start first. There is one process more than cores, because some tests mostly wait.
PYTEST := $(BIN)/pytest -q --dist loadfile --no-loadscope-reorder
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
export PATH := $(abspath $(BIN)):$(PATH)
# Only recipes that need the hub unset this.
export HF_HUB_OFFLINE ?= 1

.PHONY: help run smol install-gpu test test-all test-fast test-slow test-long test-pipeline test-vllm test-slurm test-browser lint format docs site lock audit clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/ready ## build the recipe nano, from raw forum threads to a table of scores
	$(SNAKEMAKE) nano

smol: $(VENV)/ready ## train SmolLM2-135M on small tasks; LONG=1 adds four seeds, and GSM8K
	HF_HUB_OFFLINE=0 $(BIN)/proofmill fetch $(SMOL)
	$(SNAKEMAKE) $(SMOL)

install-gpu: ## install envs/gpu.txt, for a machine with CUDA; then use `make run LOCK=envs/gpu.txt`
	$(MAKE) $(VENV)/ready LOCK=envs/gpu.txt

test: lint test-fast test-slow ## lint, then the fast tests, then the slow ones: what CI runs, 35 to 70 minutes on 2 cores

test-all: test test-long ## `make test` and `make test-long`

test-fast: $(VENV)/ready $(TOOLS)/ready ## tests without training, complete runs, vLLM, SLURM or a browser: 9 to 13 minutes
	$(PYTEST) -n 3 -m "not long and not slow and not pipeline and not vllm and not slurm and not browser"

test-slow: $(VENV)/ready ## trainings, and one complete run of each sort, with vLLM, SLURM and a browser
	$(PYTEST) -n 3 -m "not long and (slow or pipeline or vllm or slurm or browser)"

test-long: $(VENV)/ready $(SITE)/ready ## tests that `make test` omits (pytest marker `long`)
	$(PYTEST) -n 3 -m long

test-pipeline: $(VENV)/ready ## complete runs of Snakemake at reduced sizes
	$(PYTEST) -n 2 -m pipeline

test-vllm: $(VENV)/ready ## serve a tiny model with vLLM
	$(BIN)/pytest -q -m vllm

test-slurm: $(VENV)/ready ## needs a SLURM that answers `sinfo`; tests/pipeline/slurm.sh starts one on a Debian machine
	$(BIN)/pytest -q -m slurm

test-browser: $(VENV)/ready ## needs Chromium; tests/viewer/browser.sh installs it on a Debian machine
	$(BIN)/pytest -q -m browser

lint: $(VENV)/ready ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy

format: $(VENV)/ready ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: $(VENV)/ready ## generate docs/kinds/, docs/papers/ and workflow/config.schema.json
	$(BIN)/python -m proofmill.config.manual

site: $(SITE)/ready ## build the web site of docs/ into build/site, with search, and check its links; list external ones
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict
	@echo "Read it: python -m http.server --directory build/site. External links, not checked: build/external-links.txt"

lock: $(TOOLS)/ready ## update envs/ from pyproject.toml, keeping versions; UPGRADE=--upgrade takes the newest
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) pyproject.toml --extra cpu --group dev \
	  --excludes envs/excludes.txt --excludes envs/cpu-excludes.txt --output-file envs/cpu.txt >/dev/null
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) pyproject.toml --extra gpu --group dev \
	  --excludes envs/excludes.txt --output-file envs/gpu.txt >/dev/null
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) --group tools --output-file envs/tools.txt >/dev/null
	$(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) --group site --output-file envs/site.txt >/dev/null
	$(TOOLS)/bin/python envs/licenses.py

audit: $(TOOLS)/ready ## check pinned packages for known vulnerabilities; AUDIT=--offline-ok accepts that no service answers
	$(TOOLS)/bin/python envs/audit.py $(AUDIT) envs/cpu.txt envs/gpu.txt envs/tools.txt envs/site.txt

define NEEDS_PYTHON
@$(if $(PYTHON),$(PYTHON),false) -c "import ensurepip, venv" 2>/dev/null || { \
  echo "make: no Python that can create environments; expected one of $(or $(PYTHON),$(PYTHONS)), with its module venv." >&2; \
  echo "Install one, for example by 'apt install python3.11 python3.11-venv', 'pyenv install 3.11' (then" >&2; \
  echo "'make PYTHON=$$HOME/.pyenv/versions/3.11.x/bin/python') or 'uv python install 3.11'." >&2; exit 1; }
endef

# First setuptools, which builds the rest, and torch. Its CPU build is on an extra index, which pip would otherwise search
# for every package.
$(VENV)/ready: $(LOCK) pyproject.toml
	$(NEEDS_PYTHON)
	@echo "Installing $(LOCK) into $(VENV): several GB, a few minutes without output" >&2
	$(PYTHON) -m venv $(VENV)
	sed -nE '/^(setuptools|torch)==/,/[^\]$$/p' $(LOCK) >$(VENV)/first.txt
	$(PIP) --require-hashes --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu -r $(VENV)/first.txt
	$(PIP) --require-hashes -r $(LOCK)
	$(PIP) -e .
	touch $@

$(TOOLS)/ready: envs/tools.txt
$(SITE)/ready: envs/site.txt
$(TOOLS)/ready $(SITE)/ready:
	$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install $(PIP_FLAGS) --require-hashes -r $<
	touch $@

clean: ## delete the environment; results are kept
	rm -rf $(VENV)
