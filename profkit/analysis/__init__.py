"""Pure functions from a Trace to tables and numbers: intervals, launches, stages, steps, idle."""
