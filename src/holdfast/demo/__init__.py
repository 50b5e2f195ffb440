"""The demo: an example program on the public interface.  Start with story.py."""
