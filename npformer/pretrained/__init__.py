"""Weights that others trained: a sentence encoder, and PyTorch's names for a block."""
