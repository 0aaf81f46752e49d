"""Images as arrays and tensors: types, augmentation, corruptions. Knows nothing of datasets or models."""
