"""Becomes itself again with the other letter and the other rank after a moment, for ever."""

import os
import sys
import time

time.sleep(0.02)
other = "B" if sys.argv[1] == "A" else "A"
rank = "1" if other == "B" else "0"
os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, other], {**os.environ, "RANK": rank})
