"""DDP4xx: GPUs and host transport."""
