"""DDP5xx: software and limits of the host."""
