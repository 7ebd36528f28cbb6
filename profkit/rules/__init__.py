"""Rules: one RULE a file, each a fault with its cost, its advice and its own tests."""
