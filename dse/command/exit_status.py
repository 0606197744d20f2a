"""How a command of `dse` ends: 0 done, and these."""

__all__ = ["BAD_INPUT", "FAILED", "INTERRUPTED", "NOTHING_FITS"]

FAILED, BAD_INPUT, NOTHING_FITS, INTERRUPTED = 1, 2, 3, 130
