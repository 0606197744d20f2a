"""The Python face: what `import dse` offers."""
