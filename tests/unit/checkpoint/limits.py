"""A limit of time and memory on a piece of work, so that a test of absurd sizes fails instead of hanging."""

import contextlib
import signal
from pathlib import Path


@contextlib.contextmanager
def confined(seconds=2.0, megabytes=100):
    """Stop what computes for longer; fail what needed more memory at its peak."""

    def late(*_):
        raise TimeoutError(f"not done after {seconds} seconds")

    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except TimeoutError as error:
        raise AssertionError(error) from None  # the traceback would show, at length, what was being built
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    grown = memory("VmHWM") - before
    assert grown < megabytes, f"{grown} MB were taken"


def memory(kind):
    """Memory of this process in megabytes: VmRSS now, VmHWM at its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) // 1024
