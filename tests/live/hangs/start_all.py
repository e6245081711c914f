"""Starts the processes that its argument describes and stays, as a launcher does."""

import json
import subprocess
import sys
import time

children = []
for each in json.loads(sys.argv[1]):
    time.sleep(each["delay"])
    with open(each["output"], "wb") as output:
        children.append(subprocess.Popen(each["argv"], env=each["environ"], stdout=output, stderr=subprocess.STDOUT))
while True:
    time.sleep(3600)
