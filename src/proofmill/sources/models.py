"""Models of the hub: the files of one commit that a model needs to run, in the hub's own cache."""

import json
from pathlib import Path

from proofmill.schema.errors import HubError

TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = (*TOKENIZER, "*.safetensors")


def snapshot(id: str, commit: str, weights: bool = True, here: bool = False) -> Path:
    """The folder with the files of a model, or of its tokenizer alone; `here` asks nobody. Raises HubError."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            id,
            revision=commit,
            allow_patterns=list(WEIGHTS if weights else TOKENIZER),
            local_files_only=here or constants.HF_HUB_OFFLINE,  # a full commit is else asked for even when offline
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        raise HubError(
            f"{id} at {commit}: cannot be fetched ({str(error).splitlines()[0]}); expected a model of the hub at that commit. "
            "Check both, the network, HF_HUB_OFFLINE and, for a gated model, HF_TOKEN."
        ) from error
    if weights and (missing := missing_files(Path(folder))):
        raise HubError(
            f"{id} at {commit}: {missing[0]} is not here; expected every file of the model. Fetch it: proofmill fetch TARGET"
        )
    return Path(folder)


def missing_files(folder: Path) -> list[str]:
    """The weights that a model's index names and that its folder lacks; `config.json` where not even that is there."""
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    for index in sorted(folder.glob("*.safetensors.index.json")):
        shards = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        missing += sorted(shard for shard in shards if not (folder / shard).is_file())
    if not missing and not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        missing = ["model.safetensors"]
    return missing


def is_here(id: str, commit: str, weights: bool = True) -> bool:
    """Whether the cache has all files of a model; nobody is asked."""
    try:
        return snapshot(id, commit, weights, here=True).is_dir()
    except HubError:
        return False
