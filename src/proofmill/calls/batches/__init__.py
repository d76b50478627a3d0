"""Record which batches an artifact has at a server, for the engine that submits them and for the budget."""
