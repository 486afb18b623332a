"""What can be wrong with a data set."""


class DataError(ValueError):
    """A data set that cannot be trained on: one line that names the path and the next move."""


class BrokenImageError(DataError):
    """An image file that does not decode; `skip_broken` leaves such files out."""
