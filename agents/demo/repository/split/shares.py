"""Who pays how much of a bill."""


def shares(total, people):
    """The same for everybody, rounded to cents."""
    each = round(total / len(people), 2)
    return dict.fromkeys(people, each)
