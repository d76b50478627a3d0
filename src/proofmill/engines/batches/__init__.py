"""Call models through the batch API of the OpenAI protocol, at half the price and within a day.

batch_engine        the engine: submit, poll, merge into the journal
batch_log           which batches an artifact has at its server
"""
