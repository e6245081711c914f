def go():
    """Never reached."""
