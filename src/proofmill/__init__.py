"""From raw olympiad-forum threads to proof-writing models and honest benchmark numbers, as one Snakemake pipeline."""

import os

__version__ = "0.1.0"

# Opt out of usage reports by the hub's client (and through it TRL and transformers) and by vLLM. They read these variables
# on import, so set them first. Set to 0 to opt in. Hub downloads are not affected.
UNREPORTED = ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "VLLM_NO_USAGE_STATS")
os.environ.update({name: os.environ.get(name) or "1" for name in UNREPORTED})
