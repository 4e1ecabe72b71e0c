"""Texts that mark the places at which something must be found."""


def marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without its marks `§`, and the line and column of each."""
    places = []
    for number, line in enumerate(text.split("\n"), 1):
        parts = line.split("§")
        places += [(number, sum(map(len, parts[:i])) + 1) for i in range(1, len(parts))]
    return text.replace("§", ""), places
