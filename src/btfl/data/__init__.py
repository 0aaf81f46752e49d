"""Images, who owns them, and the five test streams made of them."""
