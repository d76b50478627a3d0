# The tested environment on a CPU. Build it with `docker build -t proofmill .`, then build the recipe `nano` with
# `docker run --rm -v "$PWD/results:/proofmill/results" proofmill`. For CUDA: `--build-arg LOCK=envs/gpu.txt` and
# `docker run --gpus all`; the packages include NVIDIA's libraries.
FROM python:3.11-slim-bookworm
ARG LOCK=envs/cpu.txt
# gcc and g++: vLLM and torch compile code. make: installs everything. git: stamps record the commit.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ gcc git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /proofmill
# The code comes after the packages, which change rarely, so that a rebuild takes the packages from the cache.
COPY Makefile pyproject.toml setup.py README.md LICENSE ./
COPY envs envs
COPY src/proofmill/__init__.py src/proofmill/
RUN make .venv/ready PYTHON=python3.11 LOCK="$LOCK" && rm -rf /root/.cache
COPY . .
ENV PATH=/proofmill/.venv/bin:$PATH HF_HUB_OFFLINE=1
CMD ["snakemake", "nano"]
