"""Readers: one READER a file turns what a profiler exported into a Trace."""
