# The tested environment on a CPU: `docker build -t proofmill .`, then
# `docker run --rm -v "$PWD/results:/proofmill/results" proofmill` makes the recipe `nano`.
# For CUDA: `--build-arg LOCK=envs/gpu.txt`, and `docker run --gpus all`; NVIDIA's libraries come with the packages.
FROM python:3.11-slim-bookworm
ARG LOCK=envs/cpu.txt
# gcc and g++ for what vLLM and torch compile; make is the one way to install; git is asked for a commit.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ gcc git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /proofmill
# What is installed changes seldom, the code often: it comes second, so that a build takes the packages from its cache.
COPY Makefile pyproject.toml setup.py README.md LICENSE ./
COPY envs envs
COPY src/proofmill/__init__.py src/proofmill/
RUN make .venv/ready PYTHON=python3.11 LOCK="$LOCK" && rm -rf /root/.cache
COPY . .
ENV PATH=/proofmill/.venv/bin:$PATH HF_HUB_OFFLINE=1
CMD ["snakemake", "nano"]
