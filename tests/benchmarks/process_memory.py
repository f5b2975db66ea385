"""How much memory a process uses. A process ID in, bytes out."""

import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def resident(pid: int) -> int:
    """Return the bytes that the process holds."""
    return int(psutil.Process(pid).memory_info().rss)


def forget_peak(pid: int) -> None:
    """Reset the peak, if the system can (proc(5), clear_refs)."""
    if sys.platform == "linux":
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    """Return the greatest size since then, zero where the system does not tell."""
    if sys.platform != "linux":
        return 0
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
