"""On PYTHONPATH this puts a monitored_barrier after init_process_group and before each collective that a script calls."""

import importlib.abc
import importlib.util
import os
import sys
from datetime import timedelta

COLLECTIVES = (
    "all_reduce",
    "barrier",
    "broadcast",
    "all_gather",
    "all_gather_object",
    "broadcast_object_list",
    "reduce",
)


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes torch.distributed once it is imported."""

    def find_spec(self, name, path, target=None):
        if name != "torch.distributed":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


def change(dist):
    """Its functions wait for all ranks, and say who did not come."""
    seconds = timedelta(seconds=float(os.environ.get("HANG_TIMEOUT", "600")))

    def meet():
        if dist.get_backend() == "gloo":
            dist.monitored_barrier(timeout=seconds, wait_all_ranks=True)

    def before(function):
        def wrapped(*arguments, **named):
            if named.get("group") is None:
                meet()
            return function(*arguments, **named)

        return wrapped

    def after(function):
        def wrapped(*arguments, **named):
            function(*arguments, **named)
            meet()

        return wrapped

    for name in COLLECTIVES:
        setattr(dist, name, before(getattr(dist, name)))
    dist.init_process_group = after(dist.init_process_group)


sys.meta_path.insert(0, AfterImport())
