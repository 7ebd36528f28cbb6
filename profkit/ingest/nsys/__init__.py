"""The nsys export, whatever holds its tables: identity, device rows, host rows, ranges, capture options."""
