"""What the project runs to build its own data and check itself; none of it is part of the package."""
