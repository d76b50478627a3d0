"""From raw olympiad-forum threads to proof-writing models and honest benchmark numbers, as one Snakemake pipeline."""

import os

__version__ = "0.1.0"

# What libraries read before they report about themselves: the hub's client, TRL and transformers through it (and with it
# the list of harnesses that the client would fetch to describe who runs it), and vLLM. They read it when they are
# imported, so it is set here, before any of them is; who wants to report sets it to 0. The hub itself stays in reach.
UNREPORTED = ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "VLLM_NO_USAGE_STATS")
os.environ.update({name: os.environ.get(name) or "1" for name in UNREPORTED})
