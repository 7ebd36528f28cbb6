"""Faults: one file each, with one FAULT."""
