"""DDP2xx: how the ranks find each other."""
