"""Recording: the ranges, the nsys wrapper, the PyTorch profiler, what is known of the machine."""
