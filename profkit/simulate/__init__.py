"""A causal model of CUDA that writes traces whose truth is known. See docs/simulate.md."""
