"""DDP3xx: the paths between nodes."""
