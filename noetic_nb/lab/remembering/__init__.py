"""What a request did not remember: facts that were lost, memories that were near, and layers compared by it."""
