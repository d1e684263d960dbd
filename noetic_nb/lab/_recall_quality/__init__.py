"""The quality of recall: facts that were lost, memories that were nearly sent, and layers compared by it."""
