"""Bytes of saved evidence (logs, dumps) to raw facts; nothing is executed or unpickled."""
