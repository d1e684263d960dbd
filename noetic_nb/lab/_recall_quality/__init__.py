"""The quality of recall: facts that were lost, memories that were almost sent, and comparison of layers."""
