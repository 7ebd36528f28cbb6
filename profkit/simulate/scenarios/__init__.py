"""Scenarios: one file each, with one SCENARIO."""
