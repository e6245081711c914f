"""What the process beside a watched test does: it observes the ranks below the test's process as `watch` does.

Run as a file by the interpreter of the tests, which may have found this package in a folder of its own. Writes one line of
JSON once ranks hang: `headline` and `text`.
"""

import ast
import json
import sys


def main() -> None:
    """Observe until the ranks hang or somebody ends this process; the settings are those of `in_pytest`."""
    settings = ast.literal_eval(sys.argv[1])
    sys.path.extend(entry for entry in settings["path"] if entry not in sys.path)
    from ddp_doctor.model import Report
    from ddp_doctor.render import text
    from ddp_doctor.watching.observer import Observer
    from ddp_doctor.watching.reports import collect_report
    from ddp_doctor.watching.standing import Standing
    from ddp_doctor.watching.tree import end_with

    tests = settings["tests"]
    end_with(tests)

    def report(found: Report, standing: Standing) -> bool:
        if standing is not Standing.HUNG:
            return False
        name = f"[{found.verdict.finding}] " if found.verdict.finding else ""
        cause = found.verdict.summary or "the cause could not be told"
        told = {"headline": f"hung in initialisation: {name}{cause}", "text": text.render(found)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        collect_report(found)
        return True

    Observer(lambda: [tests], settings["after"], report=report, note=lambda slow: None).run()


main()
