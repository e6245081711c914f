"""Asks the driver through NVML about itself and every GPU, also those outside CUDA_VISIBLE_DEVICES.

Every call is named before it is made, so that a hang has a name. Says {"call": ..., "gpu": index or None}, then
{"driver": {...}} once and {"gpu": {...}} per GPU. A call that fails is kept with its code and text, per GPU.
"""

import ctypes
import importlib.util
import os
import sys
import time

MIB = 1 << 20


def main(request, say, hear):
    say({"call": "dlopen libnvidia-ml.so.1", "index": None})
    try:
        # before the binding is imported: most machines without a GPU end here, for a tenth of its cost
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        say({"missing": str(error)})
        return
    nvml = load_binding(request["binding"])
    driver = {"durations": {}}

    def call(name, *arguments, index=None):
        say({"call": name, "index": index})
        started = time.monotonic()
        try:
            return getattr(nvml, name)(*arguments)
        finally:
            seconds = time.monotonic() - started
            driver["durations"][name] = max(seconds, driver["durations"].get(name, 0.0))

    def words(error):
        """The library's own text, which is what nvidia-smi and NCCL print; the binding's table differs."""
        try:
            return call("nvmlErrorString", error.value)
        except nvml.NVMLError:
            return str(error)

    try:
        call("nvmlInit")
    except nvml.NVMLError as error:
        say({"driver": dict(driver, code=error.value, status=words(error))})
        return
    driver.update(code=0, status="ok")
    for name, field in (
        ("nvmlSystemGetDriverVersion", "driver_version"),
        ("nvmlSystemGetCudaDriverVersion_v2", "cuda"),
        ("nvmlDeviceGetCount", "gpus"),
    ):
        try:
            driver[field] = call(name)
        except nvml.NVMLError as error:
            driver.setdefault("errors", []).append([name, error.value, words(error)])
    say({"driver": driver})
    for index in range(driver.get("gpus", 0)):
        say({"gpu": describe(nvml, call, words, index, request["proc"])})
    say({"driver": driver})


def load_binding(path):
    """nvidia-ml-py's module from its own file: the site-packages around it stay out of this process."""
    spec = importlib.util.spec_from_file_location("pynvml", path)
    module = sys.modules["pynvml"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(nvml, call, words, index, proc):
    gpu = {"index": index, "errors": []}

    def ask(name, *arguments):
        """The answer, or None: what a GPU does not support is no error."""
        try:
            return call(name, *arguments, index=index)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                gpu["errors"].append([name, error.value, words(error)])
        return None

    handle = ask("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return gpu
    gpu["uuid"] = ask("nvmlDeviceGetUUID", handle)
    gpu["name"] = ask("nvmlDeviceGetName", handle)
    pci = ask("nvmlDeviceGetPciInfo", handle)
    if pci is not None:
        gpu["pci"] = pci.busId if isinstance(pci.busId, str) else pci.busId.decode("ascii", "replace")
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        gpu["memory"] = [memory.total // MIB, memory.free // MIB, memory.used // MIB]
    gpu["compute_mode"] = ask("nvmlDeviceGetComputeMode", handle)
    gpu["persistence"] = ask("nvmlDeviceGetPersistenceMode", handle)
    gpu["virtualization"] = ask("nvmlDeviceGetVirtualizationMode", handle)
    mig = ask("nvmlDeviceGetMigMode", handle)
    gpu["mig"] = None if mig is None else bool(mig[0])
    if gpu["mig"]:
        gpu["mig_uuids"] = mig_uuids(nvml, call, ask, handle, index)
    gpu["ecc"] = ask(
        "nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    )
    rows = ask("nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        gpu["remap_pending"], gpu["remap_failure"] = bool(rows[2]), bool(rows[3])
    fabric = nvml.c_nvmlGpuFabricInfoV_t()
    if ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(fabric)) is not None:
        gpu["fabric"] = [fabric.state, fabric.status]
    gpu["processes"] = [
        dict(process_state(proc, found.pid), pid=found.pid, use=use, mib=memory_of(found))
        for use, name in (
            ("compute", "nvmlDeviceGetComputeRunningProcesses"),
            ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
            ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
        )
        for found in running(ask, name, handle)
    ]
    return gpu


def running(ask, name, handle):
    # a driver older than 510 has only the second form
    for version in ("_v3", "_v2"):
        found = ask(name + version, handle)
        if found is not None:
            return found
    return []


def memory_of(found):
    return None if found.usedGpuMemory is None else found.usedGpuMemory // MIB


def mig_uuids(nvml, call, ask, handle, index):
    found = []
    for number in range(ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        try:
            instance = call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number, index=index)
            found.append(call("nvmlDeviceGetUUID", instance, index=index))
        except nvml.NVMLError:
            continue  # the places up to the maximum need not be taken
    return found


def process_state(proc, pid):
    """State letter, parent and name from /proc/PID/stat; reading it never touches the process's memory."""
    found = read_stat(proc, pid)
    if found.get("state") == "D":
        # a driver call is a short D; only one that lasts means stuck
        time.sleep(0.2)
        found = read_stat(proc, pid)
    return found


def read_stat(proc, pid):
    try:
        with open(os.path.join(proc, str(pid), "stat"), "rb") as file:
            stat = file.read()
    except OSError:
        return {}
    name, rest = stat.rsplit(b")", 1)
    state, parent = rest.split()[:2]
    return {
        "state": state.decode("ascii"),
        "parent": int(parent),
        "command": name.split(b"(", 1)[1].decode("utf-8", "replace"),
    }
