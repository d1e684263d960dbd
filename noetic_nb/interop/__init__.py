"""What other systems write and read."""

from noetic_nb.interop.otel_export import OTelExporter

__all__ = ["OTelExporter"]
