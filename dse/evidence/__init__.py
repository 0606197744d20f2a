"""Predictions beside measurements: validation, calibration, speed."""
