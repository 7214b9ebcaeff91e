"""Pretrained weights: loaders for the usual file formats, tokenizers, and PyTorch's names of the arrays."""
