"""Numbers of bytes as text."""


def format_bytes(count: int | None) -> str:
    """Return bytes in the form `4.2 MB`; `size ?` for None."""
    if count is None:
        return "size ?"
    for unit, worth in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= worth:
            return f"{count / worth:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
