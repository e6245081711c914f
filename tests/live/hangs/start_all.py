"""Starts the processes that its argument describes and waits for them, as a launcher does; ends with the worst code."""

import json
import subprocess
import sys
import time

children = []
outputs = {}
for each in json.loads(sys.argv[1]):
    time.sleep(each["delay"])
    output = outputs[each["output"]] = outputs.get(each["output"]) or open(each["output"], "wb")
    children.append(subprocess.Popen(each["argv"], env=each["environ"], stdout=output, stderr=subprocess.STDOUT))
sys.exit(max(abs(child.wait()) for child in children))
