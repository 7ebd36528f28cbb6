"""What runs inside the recorded program's own interpreter: standard library only, Python 3.8 or newer.

This folder is put on PYTHONPATH, so that ``sitecustomize`` is found; nothing in it may import profkit.
"""
