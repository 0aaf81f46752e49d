"""BTFL (Zhou and Liu, KDD 2025), a file for each step: memory (HBU), evidence (CBU), and the method itself."""

from btfl.methods.btfl.method import Btfl, BtflTrace
from btfl.methods.btfl.settings import BtflSettings

__all__ = ["Btfl", "BtflSettings", "BtflTrace"]
