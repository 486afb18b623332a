"""What a wrong number costs: around the best of a landscape, and by one default."""
