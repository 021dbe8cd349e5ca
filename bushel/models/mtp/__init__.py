"""Prediction heads (MTP) of checkpoints: read, and run for the rows of a batch."""

from bushel.models.mtp.head_cache import HeadKVCache
from bushel.models.mtp.head_weights import holds_head, is_head_alone
from bushel.models.mtp.load_head import load_head
from bushel.models.mtp.mtp_head import MTPHead

__all__ = ["HeadKVCache", "MTPHead", "holds_head", "is_head_alone", "load_head"]
