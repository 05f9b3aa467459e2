"""Limits on CPU time and memory, so that a test of absurd sizes fails instead of hanging."""

import contextlib
import signal
from pathlib import Path


@contextlib.contextmanager
def confined(seconds=2.0, megabytes=100):
    """Fail if the body uses more CPU time, or more memory at its peak."""

    def stop(*_):
        raise TimeoutError(f"not done after {seconds} seconds")

    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except TimeoutError as error:
        raise AssertionError(error) from None  # without a long traceback of what was being built
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    growth = memory("VmHWM") - before
    assert growth < megabytes, f"{growth} MB were allocated"


def memory(kind):
    """Return the memory of this process in megabytes: VmRSS now, VmHWM at its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) // 1024
