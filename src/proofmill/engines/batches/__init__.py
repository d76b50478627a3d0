"""Call models through the batch API of the OpenAI protocol, at half the price and within a day."""
