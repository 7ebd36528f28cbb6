"""Report sections, one ``SECTION`` a file, found by :func:`profkit.plugins.discover`."""
