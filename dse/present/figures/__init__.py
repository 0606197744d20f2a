"""Pictures: data functions and renderers."""
