"""Holds a file lock for ever."""

import fcntl
import os
import time

from common import ready

file = open(os.environ["LOCK_FILE"], "w")
fcntl.flock(file, fcntl.LOCK_EX)
ready()
time.sleep(10000)
