"""The HTML report: ``base.html`` and one ``SECTION`` a file in ``sections/``."""
