"""A Flower app of someone's own, with the BTFL part added."""
