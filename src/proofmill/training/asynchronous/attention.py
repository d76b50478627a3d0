"""Attention over rollouts that are packed as a tree, for devices without TRL's kernel (FlashAttention 3).

TRL packs the rollouts of a micro-batch as a tree: a shared prefix, such as the prompt of a group, is
computed once (trl.experimental.async_grpo.packing). A segment of the tree attends to the path from its root.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface
from trl.experimental.async_grpo import async_grpo_trainer
from trl.experimental.async_grpo.packing import TREE_ATTENTION


def without_cuda() -> None:
    """Make TRL's trainer in this process use torch for it, and skip the query of the GPU's speed."""
    async_grpo_trainer.register_tree_attention = _register
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


def _register() -> None:
    AttentionInterface.register(TREE_ATTENTION, tree_attention)
    AttentionMaskInterface.register(TREE_ATTENTION, lambda **_: None)


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    tree_max_seqlen_q: int,
    tree_max_seqlen_k: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute TRL's `tree_attention`: queries (1, heads, N, width) and keys of N tokens in S segments -> (1, N, heads, width).

    Segments and paths are padded to the longest, and attended to together.
    """
    q_index_SQ, q_there_SQ = _pad(tree_cu_seqlens_q, tree_max_seqlen_q)
    k_place_SK, k_there_SK = _pad(tree_cu_seqlens_k, tree_max_seqlen_k)
    before_S = tree_cu_seqlens_k.diff() - tree_cu_seqlens_q.diff()  # tokens of the path before the segment
    own_SQ1 = (before_S[:, None] + torch.arange(tree_max_seqlen_q, device=query.device))[:, :, None]
    places_K = torch.arange(tree_max_seqlen_k, device=query.device)
    seen_SQK = (places_K <= own_SQ1) & k_there_SK[:, None, :]
    if sliding_window:
        seen_SQK &= places_K > own_SQ1 - sliding_window
    seen_SQK |= ~q_there_SQ[:, :, None]  # padding may attend to anything: its row must have a sum
    k_index_SK = tree_kv_index[k_place_SK]
    out = scaled_dot_product_attention(
        query[0][:, q_index_SQ].transpose(0, 1),
        key[0][:, k_index_SK].transpose(0, 1),
        value[0][:, k_index_SK].transpose(0, 1),
        attn_mask=seen_SQK[:, None],
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return out.transpose(1, 2)[q_there_SQ].unsqueeze(0), None


def _pad(bounds: torch.Tensor, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for S consecutive sequences the place of each token, and whether it exists, both padded to the longest."""
    offsets = torch.arange(longest, device=bounds.device)
    there = offsets < bounds.diff()[:, None]
    return torch.where(there, bounds[:-1, None] + offsets, 0), there
