"""One daemon that gives every program on a machine the OpenAI API over local engines."""

__version__ = "0.1.0"
