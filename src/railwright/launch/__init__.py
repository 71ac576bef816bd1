"""On which machines: how ranks are started, followed and ended."""
