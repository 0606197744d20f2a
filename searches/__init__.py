"""Ready-to-run search configurations (data); `dse search quickstart` finds them by name."""

__all__: list[str] = []
