"""Prices situations, gathers, combines: the only place where workloads and hardware meet."""

import numpy as np

# glibc hands freed blocks above its mmap threshold back to the system and faults them in again on the next call;
# freeing one large block (no page of it is touched) raises the threshold for the process. Columns of 16k rows
# then stay in the heap: two to four times faster arithmetic on them.
_released = np.empty(4_000_000)
del _released
