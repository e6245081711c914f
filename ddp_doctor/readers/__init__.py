"""Bytes of saved evidence (logs, dumps) to raw facts; nothing is executed or unpickled."""

from __future__ import annotations

from ddp_doctor.readers.log import LogReader as LogReader
