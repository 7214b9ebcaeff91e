"""What changed in the Transformer since 2017."""
