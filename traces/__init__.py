"""Small captures made by this project, each with how it was made."""
