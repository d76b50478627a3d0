"""Models of the hub: the files of one commit that a model needs to run, in the hub's own cache."""

from pathlib import Path

from proofmill.schema.errors import HubError

TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = (*TOKENIZER, "*.safetensors")


def snapshot(id: str, commit: str, weights: bool = True, here: bool = False) -> Path:
    """The folder with the files of a model, or of its tokenizer alone; `here` asks nobody.

    Raises HubError, also for a model of which only some files are in the cache and nobody is to be asked.
    """
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
    return Path(folder)


def is_here(id: str, commit: str, weights: bool = True) -> bool:
    """Whether the cache has all files of a model; nobody is asked."""
    try:
        return snapshot(id, commit, weights, here=True).is_dir()
    except HubError:
        return False
