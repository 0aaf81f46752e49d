"""What adapting costs."""
