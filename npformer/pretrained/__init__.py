"""Load pretrained weights and tokenizers, and convert parameters to and from PyTorch's names."""
