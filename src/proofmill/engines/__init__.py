"""Engines that answer questions: servers over the OpenAI protocol, and weights in this process."""
