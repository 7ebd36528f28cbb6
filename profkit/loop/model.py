"""A Llama-style decoder in plain torch: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from profkit.loop.config import VOCABULARY_SIZE, ModelConfig
from profkit.loop.kv import KVView

EMBEDDING_STD = 0.02
"""Small against the layers' outputs: with a tied head a large one would answer each token with itself."""


class RMSNorm(nn.Module):
    """x / rms(x) * weight, over the last axis, in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


class Attention(nn.Module):
    """Grouped-query attention over what the cache's view gives back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.qkv = nn.Linear(config.width, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVView) -> Tensor:
        batch, tokens, width = x.shape
        heads = self.qkv(x).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        k, v = cache.update(self.layer, rotate(k, cos, sin), v)
        y = attend(rotate(q, cos, sin), k, v, cache.mask)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: attention and feed-forward, each on a normed copy and added back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = RMSNorm(config.width, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVView) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Token ids to the logits of the token that follows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(VOCABULARY_SIZE, config.width)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        # No buffer: it stays float32 whatever the model becomes, a bfloat16 angle is off by a radian at position 256.
        self.frequencies = rope_frequencies(config)

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVView) -> Tensor:
        """Logits [sequences, vocabulary] after the last of ``tokens`` [sequences, tokens] at the same ``positions``."""
        cos, sin = self._rotation(positions)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin, cache)
        return functional.linear(self.norm(x[:, -1]), self.embedding.weight)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [sequences, 1, tokens, head_dim / 2] of each position."""
        angles = (positions.float()[..., None] * self.frequencies)[:, None]
        dtype = self.embedding.weight.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rope_frequencies(config: ModelConfig) -> Tensor:
    """Radians per position [head_dim / 2], float32."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    return torch.pow(torch.tensor(config.rope_base), -pairs)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (arXiv 2104.09864) on [sequences, heads, tokens, head_dim], halves paired as Llama does."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of q [sequences, heads, tokens, head_dim] over k, v [sequences, kv_heads, positions, head_dim].

    ``mask`` is for one new token per sequence, see ``KVView``; without one the tokens see each other causally.
    """
    batch, heads, tokens, head_dim = q.shape
    group = heads // k.shape[1]
    if mask is None:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    # The heads of a group become rows of one query: the cache is read where it lies, never repeated.
    rows = q.reshape(batch, k.shape[1], group * tokens, head_dim)
    return functional.scaled_dot_product_attention(rows, k, v, attn_mask=mask).reshape(q.shape)


def make_model(config: ModelConfig, seed: int, dtype: torch.dtype, device: torch.device) -> Decoder:
    """A decoder with random weights, the same for the same seed on every device."""
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0.0, 1 / math.sqrt(module.in_features), generator=generator)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, EMBEDDING_STD, generator=generator)
    model.frequencies = model.frequencies.to(device)
    return model.to(device=device, dtype=dtype).eval()
