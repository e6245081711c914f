"""DDP6xx: what the training program does."""
