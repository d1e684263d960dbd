"""Tests in a real browser. A package, so that the browser and its event loop end with its last test."""
