"""DDP1xx: how the ranks were started."""
