"""The median of a list of numbers."""


def median(numbers: list[float]) -> float:
    """The middle one; for an even count, the mean of the two in the middle."""
    middle = len(numbers) // 2
    return sorted(numbers)[middle]
