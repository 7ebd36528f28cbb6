"""GPU kernels, one a file: a PyTorch reference, the kernel, its wrapper, and ``cost(shape) -> bytes, flops``."""
