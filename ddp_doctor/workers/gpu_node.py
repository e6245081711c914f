"""Looks at what the kernel shows of GPUs under a root folder: PCI bus, kernel module, device nodes, MPS, fabric manager.

Says {"look": path} before anything that may block, then one {"node": {...}}. Device nodes are opened and closed again,
because only open() tells a cgroup's refusal (EPERM) from permission bits (EACCES); CUDA and NVML open the same ones.
"""

import os
import stat

NVIDIA = "0x10de"
FIRST_PID_NAMESPACE = "pid:[4026531836]"


def main(request, say, hear):
    root = request["root"]

    def at(path):
        return os.path.join(root, path.lstrip("/"))

    def text(path):
        try:
            with open(at(path), "rb") as file:
                return file.read(1 << 16).decode("utf-8", "replace")
        except OSError:
            return ""

    gpus, switches = pci_devices(at, text)
    node = {
        "pci": gpus,
        "nvswitches": switches,
        "module": text("/proc/driver/nvidia/version"),
        "rocm": os.path.exists(at("/dev/kfd")),
        "wsl": "microsoft" in text("/proc/version").lower(),
        "container": container(at, text),
        "own_pids": own_pids(at),
        "mps": is_pipe(os.path.join(at(request["mps_pipe_directory"]), "control")),
        "preload": text("/etc/ld.so.preload"),
        "fabric_manager": "",
    }
    # what is known so far survives a device node that never opens
    say({"node": node})
    node["nodes"] = [device_node(say, at(path), path) for path in device_paths(at)]
    say({"node": node})
    if switches and os.path.isdir(at("/run/systemd/system")):
        say({"look": "systemctl is-active nvidia-fabricmanager"})
        node["fabric_manager"] = service_state("nvidia-fabricmanager")
    say({"node": node})


def pci_devices(at, text):
    bus = "/sys/bus/pci/devices"
    try:
        addresses = sorted(os.listdir(at(bus)))
    except OSError:
        return None, 0
    gpus, switches = [], 0
    for address in addresses:
        place = "%s/%s/" % (bus, address)
        if text(place + "vendor").strip() != NVIDIA:
            continue
        kind = text(place + "class").strip()
        if kind.startswith("0x03"):
            link = at(place + "driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.lexists(link) else ""
            gpus.append({"address": address, "device": text(place + "device").strip(), "kernel_driver": driver})
        elif kind.startswith("0x0680"):
            switches += 1
    return gpus, switches


def device_paths(at):
    try:
        names = sorted(os.listdir(at("/dev")))
    except OSError:
        return []
    wanted = ("nvidiactl", "nvidia-uvm", "dxg")
    return ["/dev/" + name for name in names if name in wanted or (name.startswith("nvidia") and name[6:].isdigit())]


def device_node(say, path, shown):
    say({"look": "open " + shown})
    found = {"path": shown}
    try:
        status = os.stat(path)
        found["mode"] = stat.filemode(status.st_mode)
        found["owner"] = "%d:%d" % (status.st_uid, status.st_gid)
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        found["error"], found["code"] = error.strerror, error.errno
    return found


def container(at, text):
    for path in ("/.dockerenv", "/run/.containerenv", "/.singularity.d"):
        if os.path.exists(at(path)):
            return path
    groups = text("/proc/1/cgroup")
    for word in ("docker", "kubepods", "containerd", "libpod", "lxc"):
        if word in groups:
            return "/proc/1/cgroup names " + word
    return ""


def own_pids(at):
    """Whether PIDs of the host mean nothing here, because this PID namespace is not the machine's first one."""
    try:
        return os.readlink(at("/proc/self/ns/pid")) != FIRST_PID_NAMESPACE
    except OSError:
        return True


def is_pipe(path):
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode) or stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def service_state(service):
    # imported here: few machines have an NVSwitch, and the import costs as much as all the rest
    import subprocess

    try:
        asked = subprocess.run(["systemctl", "is-active", service], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return asked.stdout.decode("utf-8", "replace").strip()
