"""The PyTorch profiler's JSON: bytes to events in chunks, decimal times to integer ns, events to tables."""
