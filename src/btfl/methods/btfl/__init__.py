"""BTFL (Zhou and Liu, KDD 2025)."""
