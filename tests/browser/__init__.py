"""Tests in a real browser. A package, so that the browser and its loop end with its last test."""
