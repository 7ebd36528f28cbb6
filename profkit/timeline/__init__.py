"""What a timeline shows, apart from how it is drawn."""
