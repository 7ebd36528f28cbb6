"""The reference inference loop: a compact decoder with every stage inside its range."""
