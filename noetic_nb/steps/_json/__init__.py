"""Steps as JSON: the registry of references, workflow documents, and the published schema."""
