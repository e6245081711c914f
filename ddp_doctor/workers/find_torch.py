"""Finds torch in this interpreter without importing it: where, which version and build, which libnccl it would load."""

import importlib.util
import os
import re
import struct
import sys
import sysconfig

WHEEL = re.compile(r"(nvidia[-_.]nccl[-_.]\w+)-([^-]+)\.dist-info$", re.I)
LIBNCCL = "libnccl.so.2"
DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH = 1, 5, 15, 29


def main(request, say, hear):
    found = {
        "python_version": "%d.%d.%d" % sys.version_info[:3],
        "installer": installer(),
        "nccl_wheels": [],
    }
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is not None and spec.origin:
        found["path"] = spec.origin
        home = os.path.dirname(spec.origin)
        if spec.submodule_search_locations:
            found.update(build(os.path.join(home, "version.py")))
            found["libnccl"] = libnccl_of(os.path.join(home, "lib"))
            found["needs_nccl"] = declared_need(os.path.dirname(home))
    wheels = nccl_wheels()
    found["nccl_wheels"] = sorted(wheels)
    owners = [name for name, files in wheels.items() if is_one_of(found.get("libnccl"), files)]
    if len(owners) == 1:
        found["nccl_owner"] = owners[0]
    say(found)


def installer():
    virtual = sys.prefix != sys.base_prefix
    if not virtual and os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")):
        return ""
    if importlib.util.find_spec("pip") is not None:
        return "pip"
    return "uv" if virtual else ""


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def build(version_file):
    """Version, CUDA and HIP version, as torch/version.py assigns them."""
    text = text_of(version_file)
    found = {}
    for key, name in (("version", "__version__"), ("cuda", "cuda"), ("hip", "hip")):
        match = re.search(r"^%s\b[^=\n]*=\s*['\"]([^'\"]*)['\"]" % name, text, re.M)
        found[key] = match.group(1) if match else ""
    return found


def libnccl_of(lib):
    """The libnccl.so.2 that the dynamic linker finds for torch's CUDA library; empty where that does not ask for one."""
    needed, rpath, runpath = dynamic_section(os.path.join(lib, "libtorch_cuda.so"))
    if LIBNCCL not in needed:
        return ""
    for preloaded in re.split(r"[\s:]+", os.environ.get("LD_PRELOAD", "")):
        if os.path.basename(preloaded) == LIBNCCL and os.path.exists(preloaded):
            return preloaded
    places = [] if runpath else rpath
    places = places + os.environ.get("LD_LIBRARY_PATH", "").split(":") + runpath
    machine = "%s-linux-gnu" % os.uname().machine
    places += ["/lib64", "/usr/lib64", "/lib/" + machine, "/usr/lib/" + machine, "/usr/lib"]
    for place in places:
        place = place.replace("${ORIGIN}", lib).replace("$ORIGIN", lib)
        candidate = os.path.join(place, LIBNCCL)
        if place and os.path.exists(candidate):
            return os.path.realpath(candidate)
    return ""


def dynamic_section(path):
    """NEEDED names, RPATH and RUNPATH directories of a 64-bit little-endian ELF file; empty lists for anything else."""
    needed, rpath, runpath = [], [], []
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return needed, rpath, runpath
            offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            file.seek(offset)
            table = file.read(size * count)
            segments = [struct.unpack_from("<IIQQQQQQ", table, size * index) for index in range(count)]
            dynamic = next(segment for segment in segments if segment[0] == 2)
            file.seek(dynamic[2])
            section = file.read(dynamic[5])
            entries = [struct.unpack_from("<qQ", section, at) for at in range(0, len(section) - 15, 16)]
            address = next(value for tag, value in entries if tag == DT_STRTAB)
            load = next(s for s in segments if s[0] == 1 and s[3] <= address < s[3] + s[5])

            def string(index):
                file.seek(address - load[3] + load[2] + index)
                return file.read(8192).split(b"\0", 1)[0].decode("utf-8", "replace")

            for tag, value in entries:
                if tag == DT_NEEDED:
                    needed.append(string(value))
                elif tag == DT_RPATH:
                    rpath = string(value).split(":")
                elif tag == DT_RUNPATH:
                    runpath = string(value).split(":")
    except (OSError, StopIteration, struct.error):
        pass
    return needed, rpath, runpath


def declared_need(site):
    """The NCCL distribution that torch's own metadata pins, such as `nvidia-nccl-cu12 2.27.5`."""
    homes = [name for name in os.listdir(site) if re.match(r"torch-[^-]+\.dist-info$", name)]
    # a broken upgrade leaves two of them, and then neither is to be believed
    metadata = text_of(os.path.join(site, homes[0], "METADATA")) if len(homes) == 1 else ""
    match = re.search(r"^Requires-Dist: (nvidia-nccl-\w+)\s*\(?==\s*([\w.]+)", metadata, re.M)
    return " ".join(match.groups()) if match else ""


def nccl_wheels():
    """Installed distributions that ship a libnccl: name and version -> [(path, recorded size)]."""
    wheels = {}
    for place in dict.fromkeys(os.path.realpath(entry) for entry in sys.path if entry):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            match = WHEEL.match(name)
            if not match:
                continue
            files = []
            for line in text_of(os.path.join(place, name, "RECORD")).splitlines():
                path, _, rest = line.partition(",")
                if os.path.basename(path) == LIBNCCL and rest.rpartition(",")[2].isdigit():
                    files.append((os.path.realpath(os.path.join(place, path)), int(rest.rpartition(",")[2])))
            wheels["%s %s" % (re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))] = files
    return wheels


def is_one_of(library, files):
    try:
        return bool(library) and (os.path.realpath(library), os.path.getsize(library)) in files
    except OSError:
        return False
